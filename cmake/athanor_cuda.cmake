# athanor_kernels_cuda: the kernels of kernels/cuda/, by nvcc where it is found.
#
# Without nvcc (or with ATHANOR_CUDA=OFF, or a sanitizer) the same files are compiled as C++: they then run on the host
# only, which is what their tests need, and say so when asked for a device. Callers see no difference.

set(ATHANOR_CUDA AUTO CACHE STRING "Compile the CUDA kernels with nvcc: AUTO (where it is found), ON (or fail), OFF")
set(ATHANOR_CUDA_ARCHITECTURES 80-real 90-real 90-virtual CACHE STRING "What nvcc compiles for; default: A100, H100 and newer")

function(athanor_find_nvcc)
  set(ATHANOR_NVCC "" PARENT_SCOPE)
  if(NOT ATHANOR_CUDA OR ATHANOR_SANITIZE OR ATHANOR_FUZZ)
    message(STATUS "CUDA: kernels on the host only (ATHANOR_CUDA=${ATHANOR_CUDA}, a sanitizer or a fuzzer)")
    return()
  endif()
  find_program(ATHANOR_NVCC_PROGRAM nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(ATHANOR_NVCC_PROGRAM)
    set(ATHANOR_NVCC ${ATHANOR_NVCC_PROGRAM} PARENT_SCOPE)
  elseif(ATHANOR_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA: kernels on the host only, no nvcc found")
  else()
    message(FATAL_ERROR "ATHANOR_CUDA=${ATHANOR_CUDA}, but no nvcc was found; add it to PATH or set CUDA_HOME")
  endif()
endfunction()

athanor_find_nvcc()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp)
list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cpp$")

if(ATHANOR_NVCC)
  set(CMAKE_CUDA_COMPILER ${ATHANOR_NVCC} CACHE FILEPATH "nvcc")
  set(CMAKE_CUDA_ARCHITECTURES ${ATHANOR_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  message(STATUS "CUDA: kernels by nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
  add_library(athanor_kernels_cuda STATIC ${sources})
  set_target_properties(athanor_kernels_cuda PROPERTIES CUDA_STANDARD 20 CUDA_RUNTIME_LIBRARY Static)
  # As athanor_flags says it for the host: one expression, one rounding. Bodies call constexpr functions of the host.
  target_compile_options(athanor_kernels_cuda PRIVATE --expt-relaxed-constexpr --extended-lambda -fmad=false
    "SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off,-fno-math-errno,-fno-trapping-math")
else()
  add_library(athanor_kernels_cuda STATIC ${sources})
  target_link_libraries(athanor_kernels_cuda PRIVATE athanor_flags)
endif()
target_include_directories(athanor_kernels_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src)

if(ATHANOR_TESTS)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*_test.cpp)
  add_executable(kernels_cuda_test ${tests})
  target_link_libraries(kernels_cuda_test PRIVATE athanor_kernels athanor_kernels_cuda GTest::gtest GTest::gtest_main)
  add_test(NAME kernels_cuda COMMAND kernels_cuda_test)
  set_tests_properties(kernels_cuda PROPERTIES LABELS unit ENVIRONMENT ATHANOR_SOURCE_DIR=${CMAKE_SOURCE_DIR})
endif()

# Not part of `all` where nvcc is missing: there is nothing for it to measure.
if(ATHANOR_NVCC)
  add_executable(kernels_cuda_bench ${CMAKE_SOURCE_DIR}/src/kernels/cuda/kernels_cuda_bench.cpp)
  target_link_libraries(kernels_cuda_bench PRIVATE athanor_kernels_cuda)
endif()
