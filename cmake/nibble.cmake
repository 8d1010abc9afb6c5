# The build's few rules: one static library per layer (so a wrong dependency fails to link, too),
# one test executable per folder, one flag set for all of our code.

add_library(nibble_options INTERFACE)
target_include_directories(nibble_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
# -ffp-contract=off: a compiler that fuses a*b+c on one machine and not on another would change
# quantised codes; where a fused multiply-add is wanted the code says std::fma.
# -Werror is not for everybody: a warning that a newer compiler invents must not stop a user's build.
set(nibble_werror $<$<BOOL:${NIBBLE_WERROR}>:-Werror>)
target_compile_options(nibble_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion ${nibble_werror} -ffp-contract=off>)
# g++ 12 warns of overlapping copies in its own std::string (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(nibble_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(NIBBLE_SANITIZE)
  target_compile_options(nibble_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${NIBBLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(nibble_options INTERFACE -fsanitize=${NIBBLE_SANITIZE})
  # Instrumented, g++ 12 believes that std::regex reads uninitialised memory (GCC bug 105562).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(nibble_options INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
endif()

# nibble_layer(core SOURCES a.cpp b.cpp DEPS quant ... LIBS fmt::fmt ...)
# Creates nibble_<name>; DEPS are other layers, LIBS outside libraries. COLD: its code decides,
# reports and calls the layers below, so that a release need not optimise it for long (a third of
# the compile time of what writes JSON). APART: sources that must not share a translation unit with
# others, because Highway compiles them once for each instruction set.
function(nibble_layer name)
  cmake_parse_arguments(A "COLD" "" "SOURCES;DEPS;LIBS;APART" ${ARGN})
  if(A_SOURCES OR A_APART)
    add_library(nibble_${name} STATIC ${A_SOURCES} ${A_APART})
    set(scope PUBLIC)
  else()  # headers only
    add_library(nibble_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM A_DEPS PREPEND nibble_)
  target_link_libraries(nibble_${name} ${scope} nibble_options ${A_DEPS} ${A_LIBS})
  nibble_compile_together(nibble_${name} APART ${A_APART})
  if(A_COLD)
    target_compile_options(nibble_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# Several sources of a target become one translation unit: the headers are read and their templates
# instantiated once for all of them, which halves the compile time of the C++ code. NIBBLE_UNITY=OFF
# compiles each on its own, which is how a forgotten #include shows.
function(nibble_compile_together target)
  cmake_parse_arguments(A "" "" "APART" ${ARGN})
  get_target_property(type ${target} TYPE)
  if(NIBBLE_UNITY AND NOT type STREQUAL "INTERFACE_LIBRARY")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # Later CMakes would put kernels together, too.
    get_target_property(kernels ${target} SOURCES)
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${A_APART} ${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# nibble_test(core SOURCES x_test.cpp DEPS core LABEL unit)
# Creates test_<name> from GoogleTest sources; every TEST becomes a ctest entry. Those that match
# CUDA_FILTER become a second one, cuda_<name>.*, which runs them on the GPU. Those that match SLOW
# have the label <LABEL>-slow: `-LE slow` leaves them out, `-L <LABEL>` does not. COLD: the tests do
# not compute themselves, optimising them is not worth the time. APART: files that use the same
# short names (Shape, kCases) and so cannot be compiled together.
function(nibble_test name)
  cmake_parse_arguments(A "COLD;APART" "LABEL;TIMEOUT;CUDA_FILTER;SLOW" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT A_LABEL)
    set(A_LABEL unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  add_executable(test_${name} ${A_SOURCES})
  if(NOT A_APART)
    nibble_compile_together(test_${name})
  endif()
  list(TRANSFORM A_DEPS PREPEND nibble_)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE test_support ${A_DEPS} ${A_LIBS} GTest::gtest_main)
  # Test code compiles twice as fast this way.
  target_compile_options(test_${name} PRIVATE $<IF:$<BOOL:${A_COLD}>,-O0,-O1>)
  set(quick "")
  if(A_SLOW)
    set(quick TEST_FILTER -${A_SLOW})
    gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
      TEST_FILTER ${A_SLOW} TEST_LIST test_${name}_slow
      DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${A_LABEL}-slow TIMEOUT ${A_TIMEOUT})
  endif()
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES ${quick}
    DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${A_LABEL} TIMEOUT ${A_TIMEOUT})
  if(A_CUDA_FILTER AND NIBBLE_CUDA)
    target_sources(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/cuda_environment.cpp)
    target_link_libraries(test_${name} PRIVATE nibble_cpu nibble_cuda)
    gtest_discover_tests(test_${name} TEST_PREFIX cuda_${name}. DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
      TEST_FILTER ${A_CUDA_FILTER} TEST_LIST test_${name}_on_cuda DISCOVERY_TIMEOUT 60
      PROPERTIES LABELS cuda TIMEOUT ${A_TIMEOUT} ENVIRONMENT NIBBLE_TEST_BACKEND=cuda
        RESOURCE_LOCK gpu SKIP_REGULAR_EXPRESSION "no GPU:")
  endif()
endfunction()
