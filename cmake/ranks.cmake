# What joins ranks (src/comm): nothing unless asked for, so that a build needs neither library.
if(NIBBLE_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
if(NIBBLE_NCCL)
  find_path(NIBBLE_NCCL_INCLUDE nccl.h REQUIRED)
  find_path(NIBBLE_CUDA_INCLUDE cuda_runtime_api.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(NIBBLE_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR REQUIRED)
  find_library(NIBBLE_CUDART_LIBRARY NAMES cudart libcudart.so.12 libcudart.so.13 NAMES_PER_DIR
    HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  add_library(nibble_nccl INTERFACE)
  target_include_directories(nibble_nccl SYSTEM INTERFACE ${NIBBLE_NCCL_INCLUDE} ${NIBBLE_CUDA_INCLUDE})
  target_link_libraries(nibble_nccl INTERFACE ${NIBBLE_NCCL_LIBRARY} ${NIBBLE_CUDART_LIBRARY})
endif()
