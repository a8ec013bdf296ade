# Whether the build uses the CUDA part of libtorch. ATHANOR_LIBTORCH_CUDA is its version ("13.0", or "unknown version"), or empty:
# then the build is for CPUs, and ATHANOR_WHY_NO_CUDA is one line with the reason and the command that would change it.
#
# This is found by trying, since files tell little: PyPI's wheel of libtorch has CUDA, but its headers include some of packages
# that may not be there, and so does what it links.

set(ATHANOR_LIBTORCH_CUDA "")
set(ATHANOR_WHY_NO_CUDA "")

# The CUDA that libtorch was built for: a wheel states it in one file, an unpacked libtorch in another.
function(athanor_read_cuda_version result)
  set(text "")
  foreach(file version.py build-version)
    if(EXISTS ${ATHANOR_LIBTORCH}/${file})
      file(READ ${ATHANOR_LIBTORCH}/${file} text)
      break()
    endif()
  endforeach()
  set(version "unknown version")
  if(text MATCHES "cuda[^\n]*= '([0-9.]+)'")
    set(version ${CMAKE_MATCH_1})
  elseif(text MATCHES "\\+cu([0-9]+)([0-9])")
    set(version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})  # cu130 is 13.0
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# ATHANOR_NVCC_PROGRAM: of the PATH, of a toolkit, or of the wheels that scripts/setup installs where there is no toolkit.
function(athanor_find_nvcc_program)
  if(ATHANOR_NVCC_PROGRAM AND NOT EXISTS ${ATHANOR_NVCC_PROGRAM})  # a virtual environment that was made anew
    unset(ATHANOR_NVCC_PROGRAM CACHE)
    unset(CMAKE_CUDA_COMPILER CACHE)
    unset(ATHANOR_CUDA_INCLUDE CACHE)
  endif()
  file(GLOB wheels ${ATHANOR_LIBTORCH}/../nvidia/*/bin)
  find_program(ATHANOR_NVCC_PROGRAM nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda ${wheels} PATH_SUFFIXES bin)
endfunction()

# A program with CUDA's headers and those of libtorch that need them. It has to start, too: a linker may not miss the libraries that
# libtorch's own need. It asks for no device. `why` is empty, or the first line that tells what is missing.
function(athanor_try_libtorch_cuda why)
  set(${why} "" PARENT_SCOPE)
  # A second configuration need not try again, unless libraries may have gone.
  set(tried "${ATHANOR_LIBTORCH};${ATHANOR_CUDA_INCLUDE}")
  if("${ATHANOR_LIBTORCH_CUDA_TRIED}" STREQUAL "${tried}" AND NOT shortened)
    return()
  endif()
  set(program ${CMAKE_BINARY_DIR}/athanor_try_cuda.cpp)
  file(WRITE ${program} "#include <cuda_runtime.h>\n#include <ATen/cuda/CUDAGraph.h>\n#include <c10/cuda/CUDAStream.h>\n"
    "int main(int count, char**) { return count > 9 && c10::cuda::getCurrentCUDAStream(0).stream() != nullptr; }\n")
  set(libraries libtorch_cuda.so libc10_cuda.so libtorch_cpu.so libc10.so)
  list(TRANSFORM libraries PREPEND ${ATHANOR_LIBTORCH}/lib/)
  try_run(ended compiled ${CMAKE_BINARY_DIR}/athanor_try_cuda ${program}
    CMAKE_FLAGS -DCMAKE_CXX_STANDARD=20 -DCMAKE_CXX_FLAGS=-w
    COMPILE_DEFINITIONS -idirafter ${ATHANOR_CUDA_INCLUDE} -idirafter ${ATHANOR_LIBTORCH}/include
    LINK_LIBRARIES -Wl,--no-as-needed ${libraries}
    COMPILE_OUTPUT_VARIABLE compiler_said RUN_OUTPUT_VARIABLE program_said)
  if(compiled AND ended EQUAL 0)
    set(ATHANOR_LIBTORCH_CUDA_TRIED "${tried}" CACHE INTERNAL "this libtorch's CUDA compiles with these headers")
    return()
  endif()
  set(said "")
  foreach(pattern "fatal error: [^\n]*" "error: [^\n]*" "lib[^\n]*(not found|cannot open)[^\n]*" "undefined reference[^\n]*")
    if("${compiler_said}\n${program_said}" MATCHES "${pattern}")
      set(said ${CMAKE_MATCH_0})
      break()
    endif()
  endforeach()
  if(NOT said)
    set(said "a program with it ends with ${ended}")
  endif()
  string(REPLACE "fatal error: " "" said "${said}")
  set(${why} "${said}" PARENT_SCOPE)
endfunction()

function(athanor_choose_libtorch_cuda)
  if(NOT EXISTS ${ATHANOR_LIBTORCH}/lib/libc10_cuda.so)
    set(ATHANOR_WHY_NO_CUDA "libtorch has no CUDA" PARENT_SCOPE)
    return()
  endif()
  athanor_read_cuda_version(version)
  set(remedy "give CUDA_HOME, a toolkit of CUDA ${version}")
  file(REAL_PATH ${CMAKE_SOURCE_DIR}/.venv environment)
  file(REAL_PATH ${ATHANOR_LIBTORCH} libtorch)
  cmake_path(IS_PREFIX environment ${libtorch} is_ours)
  if(is_ours)
    set(remedy "scripts/setup --cuda, then make build")
  endif()
  file(GLOB shortened ${ATHANOR_LIBTORCH}/../torch-*.dist-info/METADATA.all)  # scripts/setup has left out most of what torch requires
  set(left_out "set-up left out CUDA's libraries, since this machine had no NVIDIA driver")
  if(EXISTS ${ATHANOR_LIBTORCH}/lib/libathanor_no_cuda.so)  # scripts/stand_in_for_cuda: it would only seem to work
    set(why "${left_out}")
  else()
    athanor_find_nvcc_program()
    get_filename_component(nvcc_folder "${ATHANOR_NVCC_PROGRAM}" DIRECTORY)
    file(GLOB wheels ${ATHANOR_LIBTORCH}/../nvidia/*/include)
    find_path(ATHANOR_CUDA_INCLUDE cuda_runtime_api.h HINTS ${nvcc_folder}/../include ENV CUDA_HOME ENV CUDA_PATH
      PATHS /usr/local/cuda ${wheels} PATH_SUFFIXES include)
    set(why "cuda_runtime_api.h was not found")
    if(ATHANOR_CUDA_INCLUDE)
      athanor_try_libtorch_cuda(why)
      if(why AND shortened)
        set(why "${left_out}")
      elseif(why)
        set(why "a program with libtorch's CUDA does not compile and run here: ${why}")
      endif()
    endif()
  endif()
  if(why)
    set(ATHANOR_WHY_NO_CUDA "${why} (${remedy})" PARENT_SCOPE)
  else()
    set(ATHANOR_LIBTORCH_CUDA ${version} PARENT_SCOPE)
  endif()
endfunction()

athanor_choose_libtorch_cuda()
if(ATHANOR_LIBTORCH_CUDA)
  message(STATUS "CUDA: libtorch for CUDA ${ATHANOR_LIBTORCH_CUDA}, with the headers of ${ATHANOR_CUDA_INCLUDE}")
else()
  message(STATUS "CUDA: a build for CPUs: ${ATHANOR_WHY_NO_CUDA}")
endif()
