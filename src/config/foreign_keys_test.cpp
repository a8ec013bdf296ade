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
  std::set<std::string_view> seen;
  for (const auto& [theirs, ours] : foreign_keys()) {
    EXPECT_TRUE(seen.insert(theirs).second) << theirs << " is listed twice";
    if (ours.starts_with("an option of")) continue;
    const std::string field(ours.substr(0, ours.find_first_of(",: ")));
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

TEST(ForeignKeys, AFieldOfAnotherTableIsNamed) {
  EXPECT_NE(
      error_of("train.weight_decay=0.1").find("unknown key train.weight_decay: here it is optimizer.weight_decay"),
      std::string::npos)
      << error_of("train.weight_decay=0.1");
  EXPECT_NE(error_of("train.sedd=3").find("did you mean \"seed\"?"), std::string::npos) << error_of("train.sedd=3");
}

}  // namespace
}  // namespace athanor::foreign_keys_test
