# athanor_test_program(NAME SOURCES...)
#
# A program that only tests run. The target `athanor_tests` builds all of them, and `all` none: who only trains does not
# wait for them.
add_custom_target(athanor_tests)
function(athanor_test_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  add_dependencies(athanor_tests ${name})
endfunction()

# athanor_add_test(NAME PROGRAM [ON_GPU] [SHARDS N] [FILTER FILTER] [ENVIRONMENT VARIABLES...] [LABELS LABELS...])
#
# One GoogleTest program as a test of ctest, or as N tests NAME_1 to NAME_N that share its cases, so that a program whose
# cases mostly wait or compute on one core ends sooner. Each test writes its cases to results/gtest/<test>.xml, where
# scripts/test_summary looks for them.
#
# Tests see no GPU, whatever the machine has, except those with ON_GPU: what they compare with was computed on a CPU.
#
# Tests run at the same time as other tests. OpenMP's threads must not spin while they wait, since they would take the
# core of another test.

function(athanor_add_test name program)
  cmake_parse_arguments(TEST "ON_GPU" "SHARDS;FILTER" "ENVIRONMENT;LABELS" ${ARGN})
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
