#include "config/foreign_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "config/dump.h"
#include "config/toml_reader.h"

namespace athanor::foreign_keys_test {
namespace {

std::string error_of(const std::string& override_text) {
  try {
    parse_run_config("[model]\nnum_experts = 0\n", "run.toml", {override_text});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ForeignKeys, EachLeadsToAFieldThatExists) {
  const auto names = run_config_keys();
  const std::set<std::string> lists = {"train.stages", "train.batch_ramp", "data.sources", "optimizer.groups"};
  std::set<std::string_view> seen;
  for (const auto& [theirs, ours] : foreign_keys()) {
    EXPECT_TRUE(seen.insert(theirs).second) << theirs << " is listed twice";
    if (ours.starts_with("an option of") || ours.starts_with("the sizes in")) continue;
    if (ours.starts_with("the table [")) {
      const std::string table(ours.substr(11, ours.find(']') - 11));
      EXPECT_TRUE(std::ranges::any_of(names, [&](const auto& name) { return name.starts_with(table + "."); })) << table;
      continue;
    }
    const std::string field(ours.substr(0, ours.find_first_of(",: ")));
    if (lists.contains(field)) continue;
    EXPECT_NE(std::ranges::find(names, field), names.end()) << theirs << " leads to " << field;
  }
}

TEST(ForeignKeys, TheyAreNamedInTheRefusalWhateverTheirTable) {
  EXPECT_NE(error_of("learning_rate=1e-3").find("unknown key learning_rate: here it is optimizer.lr"),
            std::string::npos)
      << error_of("learning_rate=1e-3");
  EXPECT_NE(error_of("train.max_steps=10").find("unknown key train.max_steps: here it is train.steps"),
            std::string::npos);
  EXPECT_NE(error_of("train.lr=0.1").find("here it is optimizer.lr"), std::string::npos);
}

TEST(ForeignKeys, AHintGoesByWhatAKeyMeansNotByItsSpelling) {
  const std::string own = "train.micro_batch_size";
  EXPECT_NE(error_of("train.local_batch_size=4").find("unknown key train.local_batch_size: here it is " + own),
            std::string::npos);
  EXPECT_NE(error_of("train.max_norm=1").find("here it is optimizer.max_grad_norm"), std::string::npos);
  EXPECT_NE(error_of("training.steps=1").find("unknown key training: here it is the table [train]"), std::string::npos);
  EXPECT_NE(error_of("tokens.train_steps=1").find("unknown key tokens: here it is the table [train]"),
            std::string::npos);
  EXPECT_NE(error_of("train.rank_microbatch_size=8").find("in sequences, not tokens"), std::string::npos);
  EXPECT_NE(error_of("model.moe_router_topk=8").find("here it is model.num_experts_per_tok"), std::string::npos);
}

TEST(ForeignKeys, WhatThereIsNotIsSaidToBeNotSupportedYet) {
  EXPECT_NE(error_of("parallelism.context_parallel_degree=2")
                .find("unknown key parallelism.context_parallel_degree: not supported yet"),
            std::string::npos);
}

TEST(ForeignKeys, AFieldOfAnotherTableIsNamed) {
  EXPECT_NE(
      error_of("train.weight_decay=0.1").find("unknown key train.weight_decay: here it is optimizer.weight_decay"),
      std::string::npos)
      << error_of("train.weight_decay=0.1");
  EXPECT_NE(error_of("train.sedd=3").find("did you mean \"seed\"?"), std::string::npos) << error_of("train.sedd=3");
}

}  // namespace
}  // namespace athanor::foreign_keys_test
