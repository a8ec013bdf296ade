# athanor_test_program(NAME SOURCES...)
#
# A program that only tests run. The target `athanor_tests` builds all of them, and `all` none: who only trains does not
# wait for them. `athanor_test_helpers` are those that tests in Python start, all but the rooms' own.
add_custom_target(athanor_tests)
add_custom_target(athanor_test_helpers)
function(athanor_test_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  add_dependencies(athanor_tests ${name})
  if(NOT name MATCHES "_test$")
    add_dependencies(athanor_test_helpers ${name})
  endif()
endfunction()

# The main of the GoogleTest programs, which notes the processor time of each case.
if(ATHANOR_TESTS)
  add_library(athanor_gtest_main STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/gtest_main.cpp)
  target_link_libraries(athanor_gtest_main PUBLIC athanor_flags GTest::gtest)
endif()

# athanor_add_test(NAME PROGRAM [ON_GPU] [SHARDS N] [FILTER FILTER] [ENVIRONMENT VARIABLES...] [LABELS LABELS...])
#
# One GoogleTest program as a test of ctest, or as N tests NAME_1 to NAME_N that share its cases, so that a program whose
# cases mostly wait or compute on one core ends sooner. Each test writes its cases to results/gtest/<test>.xml, where
# scripts/test_summary looks for them.
#
# Tests see no GPU, whatever the machine has, except those with ON_GPU: what they compare with was computed on a CPU.
#
# Cases whose suite or instantiation begins with TestAll (base/testing/test_all.h) are left out of these tests. They are the tests
# NAME_all, with the label `slow`, of the first call for a program.
#
# Tests run at the same time as other tests. OpenMP's threads must not spin while they wait, since they would take the
# core of another test.

function(athanor_add_test name program)
  cmake_parse_arguments(TEST "ON_GPU" "SHARDS;FILTER" "ENVIRONMENT;LABELS" ${ARGN})
  get_target_property(has_all ${program} ATHANOR_HAS_ALL)
  if(NOT has_all AND NOT TEST_FILTER MATCHES "TestAll")
    set_target_properties(${program} PROPERTIES ATHANOR_HAS_ALL ON)
    athanor_add_test(${name}_all ${program} FILTER TestAll* ENVIRONMENT ${TEST_ENVIRONMENT} LABELS slow)
  endif()
  if(NOT TEST_FILTER MATCHES "TestAll")  # a filter is "these:and these-not these:nor these"
    string(FIND "${TEST_FILTER}" "-" negative)
    if(negative EQUAL -1)
      string(APPEND TEST_FILTER "-TestAll*")
    else()
      string(APPEND TEST_FILTER ":TestAll*")
    endif()
  endif()
  if(NOT TEST_SHARDS)  # also when SHARDS has no value
    set(TEST_SHARDS 1)
  endif()
  if(NOT TEST_LABELS)
    set(TEST_LABELS unit)
  endif()
  foreach(shard RANGE 1 ${TEST_SHARDS})
    set(test ${name})
    set(environment ${TEST_ENVIRONMENT} ATHANOR_SOURCE_DIR=${CMAKE_SOURCE_DIR} OMP_WAIT_POLICY=passive)
    if(TEST_ON_GPU)
      list(APPEND environment ATHANOR_TEST_DEVICE=cuda CUBLAS_WORKSPACE_CONFIG=:4096:8)
    else()
      list(APPEND environment CUDA_VISIBLE_DEVICES=)
    endif()
    if(TEST_SHARDS GREATER 1)
      set(test ${name}_${shard})
      math(EXPR index "${shard} - 1")
      list(APPEND environment GTEST_TOTAL_SHARDS=${TEST_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    list(APPEND environment GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/results/gtest/${test}.xml)
    add_test(NAME ${test} COMMAND ${program})
    if(TEST_FILTER)
      list(APPEND environment "GTEST_FILTER=${TEST_FILTER}")
    endif()
    set_tests_properties(${test} PROPERTIES LABELS "${TEST_LABELS}" ENVIRONMENT "${environment}")
  endforeach()
endfunction()
