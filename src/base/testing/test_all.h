#pragma once
// What only `make test-all` runs: a test suite, or an instantiation of one, whose name begins with TestAll. ctest has
// these cases under the label `slow` (cmake/athanor_test.cmake).
//
//   INSTANTIATE_TEST_SUITE_P(Cases, PlayedStepOfRanks, testing::ValuesIn(diagonal()));    // in `make test`
//   INSTANTIATE_TEST_SUITE_P(TestAll, PlayedStepOfRanks, testing::ValuesIn(all_cases()));

#include <gtest/gtest.h>

#include <string_view>

namespace athanor::test {

/// True in a case that only `make test-all` runs, which may then do all of what is a part otherwise.
inline bool is_of_test_all() {
  const auto* suite = testing::UnitTest::GetInstance()->current_test_suite();
  return suite && std::string_view(suite->name()).starts_with("TestAll");
}

}  // namespace athanor::test
