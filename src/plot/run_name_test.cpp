// How runs are called in legends.

#include "plot/run_name.h"

#include <gtest/gtest.h>

namespace athanor::run_name_test {
namespace {

using Names = std::vector<std::string>;

TEST(RunNames, OfSeveralRunsTheFoldersThatAllShareAreLeftOut) {
  EXPECT_EQ(without_common_folders({"build/runs/dense-1", "build/runs/sparse-1"}), (Names{"dense-1", "sparse-1"}));
  EXPECT_EQ(without_common_folders({"/a/x/run", "/a/y/run"}), (Names{"x/run", "y/run"}));
  EXPECT_EQ(without_common_folders({"a/run", "b/run"}), (Names{"a/run", "b/run"}));
}

TEST(RunNames, NoNameBecomesEmptyAndOneAloneStaysWhole) {
  EXPECT_EQ(without_common_folders({"build/runs/dense-1"}), (Names{"build/runs/dense-1"}));
  EXPECT_EQ(without_common_folders({"runs/a", "runs"}), (Names{"runs/a", "runs"}));
  EXPECT_EQ(without_common_folders({"runs", "runs/a"}), (Names{"runs", "runs/a"}));
  EXPECT_EQ(without_common_folders({"x/a", "x/a/metrics-001.jsonl"}), (Names{"a", "a/metrics-001.jsonl"}));
}

}  // namespace
}  // namespace athanor::run_name_test
