# Chooses the files of ops/device/: how this libtorch gives the current CUDA stream, and a build in which the ops' own tests
# run the device forms.

if(EXISTS ${ATHANOR_LIBTORCH}/lib/libc10_cuda.so)
  get_filename_component(nvcc_folder "${ATHANOR_NVCC}" DIRECTORY)
  file(GLOB wheels ${ATHANOR_LIBTORCH}/../nvidia/*/include)
  find_path(ATHANOR_CUDA_INCLUDE cuda_runtime_api.h
    HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${nvcc_folder}/../include ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda ${wheels} PATH_SUFFIXES include)
  if(NOT ATHANOR_CUDA_INCLUDE)
    message(FATAL_ERROR "This libtorch has CUDA, but cuda_runtime_api.h was not found: set CUDA_HOME or -DATHANOR_CUDA_INCLUDE=FOLDER")
  endif()
  target_sources(athanor_ops PRIVATE ${CMAKE_SOURCE_DIR}/src/ops/device/choices/libtorch_with_cuda.cpp)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/device/choices/libtorch_with_cuda.cpp PROPERTIES
    INCLUDE_DIRECTORIES ${ATHANOR_CUDA_INCLUDE})
  message(STATUS "CUDA: ops on CUDA tensors, with libtorch's stream")
else()
  target_sources(athanor_ops PRIVATE ${CMAKE_SOURCE_DIR}/src/ops/device/choices/libtorch_without_cuda.cpp)
  message(STATUS "CUDA: this libtorch has none (no libc10_cuda.so); ops run on CPU tensors only")
endif()

if(ATHANOR_TESTS)
  # One function of the room is replaced at link time, so it is in a separate object.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/device/takes.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  athanor_test_program(ops_device_test $<TARGET_OBJECTS:ops_test>
    ${CMAKE_SOURCE_DIR}/src/ops/device/choices/takes_everything.cpp)
  target_link_libraries(ops_device_test PRIVATE athanor_ops athanor_guarded GTest::gtest GTest::gtest_main)
  athanor_precompile(ops_device_test TRUE)
  # Tests of code that never reaches a device form (portable forms compared with formulas, the CPU's memory) are left out, and so
  # are tests that no bits depend on threads or other rows: on a CPU the device forms use products of the library, which does not ensure this.
  athanor_add_test(ops_device ops_device_test
    FILTER -*Portable*:*OfTheLibrary*:*Bound.*:BlockHeap*:CpuAllocator*:FlatMemory*:Threads.*:*NoBitsOfARow*:TreeAttention.OfOneNode*:*OnDevice*)
endif()
