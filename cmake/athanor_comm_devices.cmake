# Chooses the device collectives of the comm room for this libtorch: NCCL, XCCL, or for each a file that implements its absence.

option(ATHANOR_NCCL "Use NCCL where libtorch brings it" ON)
option(ATHANOR_XCCL "Use XCCL where libtorch brings it" ON)
set(devices ${CMAKE_SOURCE_DIR}/src/comm/device)

set(nccl ${devices}/nccl_absent.cpp)
if(ATHANOR_NCCL AND ATHANOR_LIBTORCH_CUDA)
  file(GLOB wheels ${ATHANOR_LIBTORCH}/../nvidia/nccl/include ${ATHANOR_LIBTORCH}/../nvidia/*/include)
  find_path(ATHANOR_NCCL_INCLUDE nccl.h HINTS ${wheels} ENV NCCL_HOME ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(ATHANOR_NCCL_INCLUDE)
    # libtorch's header also includes those of cuBLAS, cuSPARSE and cuSOLVER. They are next to cuda_runtime_api.h or, in
    # wheels, in a folder each. They come after all others, since there may be another fmt among them.
    set(includes "-idirafter ${ATHANOR_NCCL_INCLUDE}" "-idirafter ${ATHANOR_CUDA_INCLUDE}")
    foreach(folder ${wheels})
      list(APPEND includes "-idirafter ${folder}")
    endforeach()
    list(JOIN includes " " includes)
    # Tried, since an NCCL or a toolkit of another version may not go with libtorch's header.
    if(NOT "${ATHANOR_NCCL_TRIED}" STREQUAL "${ATHANOR_LIBTORCH};${includes}")
      file(WRITE ${CMAKE_BINARY_DIR}/athanor_try_nccl.cpp "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\n")
      set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
      separate_arguments(flags UNIX_COMMAND "${includes}")
      try_compile(works ${CMAKE_BINARY_DIR}/athanor_try_nccl ${CMAKE_BINARY_DIR}/athanor_try_nccl.cpp
        CMAKE_FLAGS -DCMAKE_CXX_STANDARD=20 -DCMAKE_CXX_FLAGS=-w
        COMPILE_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D_NCCL ${flags} -idirafter ${ATHANOR_LIBTORCH}/include
          -idirafter ${ATHANOR_LIBTORCH}/include/torch/csrc/api/include)
      unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
      unset(ATHANOR_NCCL_TRIED CACHE)
      if(works)
        set(ATHANOR_NCCL_TRIED "${ATHANOR_LIBTORCH};${includes}" CACHE INTERNAL "libtorch's NCCL compiles with these headers")
      endif()
    endif()
  endif()
  if(ATHANOR_NCCL_INCLUDE AND ATHANOR_NCCL_TRIED)
    set(nccl ${devices}/nccl.cpp)
    set_source_files_properties(${nccl} PROPERTIES COMPILE_DEFINITIONS USE_C10D_NCCL COMPILE_FLAGS "${includes}"
      SKIP_PRECOMPILE_HEADERS ON)
  endif()
endif()
target_sources(athanor_comm PRIVATE ${nccl})

set(xccl ${devices}/xccl_absent.cpp)
if(ATHANOR_XCCL AND EXISTS ${ATHANOR_LIBTORCH}/lib/libtorch_xpu.so)
  # This needs oneCCL's ccl.hpp, and the header of the process group, which is in the sources of torch-xpu-ops (src/).
  find_path(ATHANOR_XCCL_INCLUDE xccl/ProcessGroupXCCL.hpp HINTS ${ATHANOR_LIBTORCH}/include)
  find_path(ATHANOR_ONECCL_INCLUDE oneapi/ccl.hpp HINTS ENV CCL_ROOT PATH_SUFFIXES include)
  if(ATHANOR_XCCL_INCLUDE AND ATHANOR_ONECCL_INCLUDE)
    set(xccl ${devices}/xccl.cpp)
    set_source_files_properties(${xccl} PROPERTIES COMPILE_DEFINITIONS USE_C10D_XCCL SKIP_PRECOMPILE_HEADERS ON
      COMPILE_FLAGS "-idirafter ${ATHANOR_XCCL_INCLUDE} -idirafter ${ATHANOR_ONECCL_INCLUDE}")
    target_link_libraries(athanor_torch INTERFACE
      -Wl,--no-as-needed ${ATHANOR_LIBTORCH}/lib/libtorch_xpu.so ${ATHANOR_LIBTORCH}/lib/libc10_xpu.so -Wl,--as-needed)
  endif()
endif()
target_sources(athanor_comm PRIVATE ${xccl})

get_filename_component(nccl ${nccl} NAME_WE)
get_filename_component(xccl ${xccl} NAME_WE)
message(STATUS "Device collectives: ${nccl}, ${xccl}")
