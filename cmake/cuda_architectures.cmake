# For which GPUs the CUDA code is compiled. By hand (CMAKE_CUDA_ARCHITECTURES on the command line or
# in the cache, CUDAARCHS in the environment; "release" means every GPU) wins; otherwise for the GPUs
# of this machine; where none is found, for Hopper and, as PTX, for all that the driver can compile.

# Every day one machine; a release takes all: 80 (Ampere and, compiled by the driver, what is not
# named), 90a (H100, H200), 100a (B200), 120a (RTX 50), 121a (DGX Spark).
set(NIBBLE_CUDA_RELEASE_ARCHITECTURES 80-virtual 90a-real 100a-real 120a-real 121a-real)
set(NIBBLE_CUDA_PORTABLE_ARCHITECTURE 80-virtual)  # PTX: the driver compiles it for any later GPU

# Sets <out_lines> to a list of "capability, name", one for each GPU that nvidia-smi describes, and
# <out_problem> to why there is none.
function(nibble_list_gpus out_lines out_problem)
  set(lines "")
  set(problem "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap,name --format=csv,noheader
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_QUIET TIMEOUT 60
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+, *[^\r\n;]+" lines "${output}")
  if(NOT status MATCHES "^[0-9]+$")  # the words of the system, e.g. "no such file or directory"
    set(problem "nvidia-smi: ${status}")
  elseif(NOT status EQUAL 0)
    set(problem "nvidia-smi failed, exit ${status}")
    set(lines "")
  elseif(NOT lines)
    set(problem "nvidia-smi lists none")
  endif()
  list(SORT lines COMPARE NATURAL)
  set(${out_lines} "${lines}" PARENT_SCOPE)
  set(${out_problem} "${problem}" PARENT_SCOPE)
endfunction()

# Sets <out> to whether <nvcc> compiles for <number> (90, 121...). One that cannot be asked may.
function(nibble_nvcc_knows out nvcc number)
  execute_process(COMMAND "${nvcc}" --list-gpu-arch
    RESULT_VARIABLE status OUTPUT_VARIABLE known ERROR_QUIET)
  set(${out} ON PARENT_SCOPE)
  if(status EQUAL 0 AND NOT known MATCHES "compute_${number}[\r\n]")
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# Sets <out> to CMake's name for a GPU of compute capability <major>.<minor>, and <out_remark> to why
# it is not the GPU's own machine code. From 9.0 on only "a" has all instructions of the GPU.
function(nibble_architecture_of out out_remark nvcc major minor)
  set(${out_remark} "" PARENT_SCOPE)
  nibble_nvcc_knows(known "${nvcc}" ${major}${minor})
  if(major LESS 8)
    set(${out} "" PARENT_SCOPE)
    set(${out_remark} ": not used, nibble's kernels need 8.0 or later" PARENT_SCOPE)
  elseif(NOT known)
    set(${out} ${NIBBLE_CUDA_PORTABLE_ARCHITECTURE} PARENT_SCOPE)
    set(${out_remark} ": unknown to ${nvcc}, so the driver will compile PTX for it" PARENT_SCOPE)
  elseif(major LESS 9)
    set(${out} ${major}${minor}-real PARENT_SCOPE)
  else()
    set(${out} ${major}${minor}a-real PARENT_SCOPE)
  endif()
endfunction()

# Sets CMAKE_CUDA_ARCHITECTURES in the caller's scope and says what was chosen and why. <nvcc> is the
# compiler that will be used.
function(nibble_choose_cuda_architectures nvcc)
  set(chosen "")
  if(NOT "${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "")
    set(chosen ${CMAKE_CUDA_ARCHITECTURES})
    set(why "by hand, CMAKE_CUDA_ARCHITECTURES")
  elseif(NOT "$ENV{CUDAARCHS}" STREQUAL "")
    set(chosen $ENV{CUDAARCHS})
    set(why "by hand, CUDAARCHS in the environment")
    # As CMake does it: remembered, so that the next run need not be told again.
    set(CMAKE_CUDA_ARCHITECTURES "${chosen}" CACHE STRING "CUDA architectures")
  else()
    nibble_list_gpus(gpus problem)
    set(names "")
    foreach(gpu IN LISTS gpus)
      string(REGEX MATCH "^([0-9]+)\\.([0-9]+), *(.+)$" _ "${gpu}")
      set(name "${CMAKE_MATCH_3} (${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
      nibble_architecture_of(architecture remark "${nvcc}" ${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
      list(APPEND chosen ${architecture})
      list(APPEND names "${name}${remark})")
    endforeach()
    list(REMOVE_DUPLICATES chosen)
    list(REMOVE_DUPLICATES names)
    list(JOIN names ", " names)
    set(why "for the GPUs found: ${names}")
    if(gpus AND NOT chosen)
      set(chosen ${NIBBLE_CUDA_PORTABLE_ARCHITECTURE})
    elseif(NOT gpus)
      set(chosen 90a-real ${NIBBLE_CUDA_PORTABLE_ARCHITECTURE})
      set(why "no GPU found, ${problem}")
    endif()
  endif()
  if(chosen STREQUAL "release")
    set(chosen ${NIBBLE_CUDA_RELEASE_ARCHITECTURES})
    string(APPEND why ": release")
  endif()
  message(STATUS "CUDA code for ${chosen} (${why})")
  set(CMAKE_CUDA_ARCHITECTURES "${chosen}" PARENT_SCOPE)
endfunction()
