# athanor_kernels_cuda: the kernels of kernels/cuda/, compiled by nvcc if it is found.
#
# Without nvcc (or with ATHANOR_CUDA=OFF, or a sanitizer) the same files are compiled as C++. They then run on the host
# only, which is what their tests need, and throw an error if a device is requested. Callers see no difference.

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp)
list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cpp$")

if(ATHANOR_NVCC)
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
  add_library(athanor_kernels_cuda STATIC ${sources})
  set_target_properties(athanor_kernels_cuda PROPERTIES CUDA_STANDARD 20 CUDA_RUNTIME_LIBRARY Static)
  # As in athanor_flags for the host: one expression is one rounding. Bodies call constexpr functions of the host.
  target_compile_options(athanor_kernels_cuda PRIVATE --expt-relaxed-constexpr --extended-lambda -fmad=false
    "SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off,-fno-math-errno,-fno-trapping-math")
else()
  add_library(athanor_kernels_cuda STATIC ${sources})
  target_link_libraries(athanor_kernels_cuda PRIVATE athanor_flags)
endif()
target_include_directories(athanor_kernels_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src)

if(ATHANOR_TESTS)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*_test.cpp)
  athanor_test_program(kernels_cuda_test ${tests})
  target_link_libraries(kernels_cuda_test PRIVATE athanor_kernels athanor_kernels_cuda athanor_gtest_main)
  athanor_add_test(kernels_cuda kernels_cuda_test)
  if(ATHANOR_LIBTORCH_CUDA)
    athanor_add_test(kernels_on_gpu kernels_cuda_test ON_GPU FILTER */Cuda LABELS gpu)
  endif()
endif()

# A machine without nvcc compiles these files together, as C++: where nvcc is found, the tests do so as well.
if(ATHANOR_TESTS AND ATHANOR_NVCC)
  set(together "")
  foreach(source ${sources})
    string(APPEND together "#include \"${source}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/kernels_without_nvcc.cpp CONTENT "${together}" @ONLY)
  add_library(kernels_without_nvcc OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/kernels_without_nvcc.cpp)
  target_include_directories(kernels_without_nvcc PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(kernels_without_nvcc PRIVATE athanor_flags)
  add_dependencies(athanor_tests kernels_without_nvcc)
endif()

# The benchmark is not part of `all` if nvcc is missing: it has nothing to measure then.
if(ATHANOR_NVCC)
  add_executable(kernels_cuda_bench ${CMAKE_SOURCE_DIR}/src/kernels/cuda/kernels_cuda_bench.cpp)
  target_link_libraries(kernels_cuda_bench PRIVATE athanor_kernels_cuda)
endif()
