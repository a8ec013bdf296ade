# libtorch as the target `athanor_torch`.
#
# Its folder contains include/ and lib/: a wheel's site-packages/torch, or an unpacked libtorch. TorchConfig.cmake is not used,
# since it requires protobuf, MKL and the CUDA languages, while two include folders and three libraries are enough. Its include
# folders come last (-idirafter), since the wheel contains fmt headers that would hide the system's.

set(ATHANOR_LIBTORCH "" CACHE PATH "Folder of libtorch (with include/ and lib/); default: the project's virtual environment")
if(NOT ATHANOR_LIBTORCH)
  file(GLOB found ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  foreach(prefix ${found} ${CMAKE_PREFIX_PATH})
    if(EXISTS ${prefix}/include/ATen/ATen.h)
      set(ATHANOR_LIBTORCH ${prefix})
      break()
    endif()
  endforeach()
endif()
if(NOT EXISTS ${ATHANOR_LIBTORCH}/include/ATen/ATen.h)
  message(FATAL_ERROR "No libtorch found: run `make setup`, or point at one with -DATHANOR_LIBTORCH=FOLDER")
endif()

file(READ ${ATHANOR_LIBTORCH}/include/torch/headeronly/version.h version_text)
string(REGEX MATCH "TORCH_VERSION_MAJOR ([0-9]+)" unused "${version_text}")
set(major ${CMAKE_MATCH_1})
string(REGEX MATCH "TORCH_VERSION_MINOR ([0-9]+)" unused "${version_text}")
set(minor ${CMAKE_MATCH_1})
string(REGEX MATCH "TORCH_VERSION_PATCH ([0-9]+)" unused "${version_text}")
set(ATHANOR_LIBTORCH_VERSION ${major}.${minor}.${CMAKE_MATCH_1})
if("${major}.${minor}" VERSION_LESS 2.11)
  message(FATAL_ERROR "libtorch ${major}.${minor} in ${ATHANOR_LIBTORCH} is too old: 2.11 or newer is needed")
endif()

message(STATUS "libtorch ${major}.${minor} in ${ATHANOR_LIBTORCH}")
include(athanor_libtorch_cuda)

add_library(athanor_torch INTERFACE)
target_compile_options(athanor_torch INTERFACE
  "SHELL:-idirafter ${ATHANOR_LIBTORCH}/include" "SHELL:-idirafter ${ATHANOR_LIBTORCH}/include/torch/csrc/api/include")
target_compile_definitions(athanor_torch INTERFACE USE_DISTRIBUTED)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It warns of a vector<bool> in libtorch's autograd functions, whose code is in ours after inlining.
  target_compile_options(athanor_torch INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endif()
# libtorch.so has nothing in it; it brings the libraries of libtorch's devices, all those of CUDA for example. The C++ library comes
# before libtorch: some wheels export functions of std::filesystem that crash, and of two definitions the
# loader takes the first.
set(devices ${ATHANOR_LIBTORCH}/lib/libtorch.so)
if(EXISTS ${ATHANOR_LIBTORCH}/lib/libc10_cuda.so AND NOT ATHANOR_LIBTORCH_CUDA)
  set(devices "")
endif()
target_link_libraries(athanor_torch INTERFACE
  -Wl,--no-as-needed -lstdc++ ${devices} ${ATHANOR_LIBTORCH}/lib/libtorch_cpu.so -Wl,--as-needed
  ${ATHANOR_LIBTORCH}/lib/libc10.so)
if(ATHANOR_LIBTORCH_CUDA)
  # No target names libtorch_cuda.so: it registers its kernels when it is loaded.
  target_link_libraries(athanor_torch INTERFACE -Wl,--no-as-needed ${ATHANOR_LIBTORCH}/lib/libtorch_cuda.so
    ${ATHANOR_LIBTORCH}/lib/libc10_cuda.so -Wl,--as-needed)
endif()

# at::parallel_for is a template in a header: compiled without OpenMP, it silently runs every loop on one thread. The wheel's
# libtorch contains an OpenMP library, and a second one in the process would also start a thread for every core. The thread
# sanitizer does not know its threads.
if(NOT ATHANOR_SANITIZE MATCHES thread)
  target_compile_options(athanor_torch INTERFACE -fopenmp)
  file(GLOB openmp ${ATHANOR_LIBTORCH}/lib/libgomp*.so*)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # What clang compiles calls its own OpenMP library. That has the functions of GCC's, too, and comes before libtorch's copy, so that
    # libtorch uses it as well.
    set(openmp -fopenmp)
  elseif(openmp)
    list(GET openmp 0 openmp)
  else()
    set(openmp -fopenmp)
  endif()
  target_link_libraries(athanor_torch INTERFACE ${openmp})
endif()
