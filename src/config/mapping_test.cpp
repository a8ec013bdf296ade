#include "config/mapping.h"

#include <gtest/gtest.h>

#include "config/dump.h"
#include "config/testing/error_of.h"

namespace athanor::mapping_test {
namespace {

constexpr const char* kDense = "[model]\nfamily = \"olmo\"\n";
constexpr const char* kList = "parallelism.mapping=[\"shard\", \"replicate\", \"expert\", \"pipeline\", \"tensor\"]";

TEST(Mapping, IsANameOrAList) {
  EXPECT_EQ(axes_of(RunConfig{}.parallelism.mapping), axis_names());
  const auto named = parse_run_config(kDense, "run.toml", {"parallelism.mapping=data_inner"});
  EXPECT_EQ(axes_of(named.parallelism.mapping),
            (std::vector<std::string>{"pipeline", "expert", "replicate", "shard", "context", "tensor"}));
  const auto listed = parse_run_config(kDense, "run.toml", {kList});
  EXPECT_EQ(axes_of(listed.parallelism.mapping),
            (std::vector<std::string>{"shard", "replicate", "expert", "pipeline", "tensor", "context"}));
}

TEST(Mapping, BothFormsSurviveADump) {
  for (const char* override : {"parallelism.mapping=data_inner", kList}) {
    const auto config = parse_run_config(kDense, "run.toml", {override});
    const auto again = parse_run_config(dump_run_config(config), "dump");
    EXPECT_EQ(again.parallelism.mapping, config.parallelism.mapping);
  }
  EXPECT_NE(dump_run_config(parse_run_config(kDense, "run.toml", {kList})).find("mapping = [\"shard\", \"replicate\""),
            std::string::npos);
}

TEST(Mapping, EveryFaultIsNamed) {
  const std::string error = error_of(kDense, {"parallelism.mapping=[\"shard\", \"shard\", \"exprt\", \"tensor\"]"});
  for (const char* part : {"\"exprt\" is not an axis (did you mean \"expert\"?)", "has \"shard\" 2 times",
                           "lacks \"pipeline\"", "lacks \"replicate\"", "lacks \"expert\""}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
  EXPECT_EQ(error.find("lacks \"context\""), std::string::npos) << error;
  EXPECT_NE(error_of(kDense, {"parallelism.mapping=data_iner"}).find("did you mean \"data_inner\"?"),
            std::string::npos);
  EXPECT_NE(error_of(kDense, {"parallelism.mapping=3"})
                .find("expected a string in quotes or a list of them, written [\"one\", \"two\"], got 3"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor::mapping_test
