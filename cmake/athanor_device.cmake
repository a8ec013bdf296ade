# Chooses the files of ops/device/: how this libtorch gives the current CUDA stream, and a build in which the ops' own tests
# run the device forms.

if(ATHANOR_LIBTORCH_CUDA)
  target_sources(athanor_ops PRIVATE ${CMAKE_SOURCE_DIR}/src/ops/device/choices/libtorch_with_cuda.cpp)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/device/choices/libtorch_with_cuda.cpp PROPERTIES
    INCLUDE_DIRECTORIES ${ATHANOR_CUDA_INCLUDE})
else()
  target_sources(athanor_ops PRIVATE ${CMAKE_SOURCE_DIR}/src/ops/device/choices/libtorch_without_cuda.cpp)
endif()

if(ATHANOR_TESTS)
  # One function of the room is replaced at link time, so it is in a separate object.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/device/takes.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  athanor_test_program(ops_device_test $<TARGET_OBJECTS:ops_test>
    ${CMAKE_SOURCE_DIR}/src/ops/device/choices/takes_everything.cpp)
  target_link_libraries(ops_device_test PRIVATE athanor_ops athanor_guarded athanor_gtest_main)
  athanor_precompile(ops_device_test TORCH LIGHT)
  # Tests of code that never reaches a device form (portable forms compared with formulas, the CPU's memory) are left out, and so
  # are tests that no bits depend on threads or other rows: on a CPU the device forms use products of the library, which does not ensure this.
  athanor_add_test(ops_device ops_device_test
    FILTER -*Portable*:*OfTheLibrary*:*Bound.*:BlockHeap*:CpuAllocator*:FlatMemory*:Threads.*:*NoBitsOfARow*:TreeAttention.OfOneNode*:*OnDevice*)
endif()
