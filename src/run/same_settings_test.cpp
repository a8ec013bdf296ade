#include "run/same_settings.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/thread_ranks.h"

namespace athanor::same_settings_test {
namespace {

// Returns what each of three ranks is told.
std::vector<std::string> told(const std::function<void(RunConfig&, int rank)>& change) {
  std::vector<std::string> texts(3);
  comm::run_ranks(3, [&](comm::World& world) {
    RunConfig config;
    change(config, world.rank());
    try {
      require_same_settings(config, world);
    } catch (const ConfigError& error) {
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return texts;
}

TEST(SameSettings, AreNotRequiredOfWhereDataLieAndOfWhatEachHostHas) {
  const auto texts = told([](RunConfig& config, int rank) {
    config.data.path = std::to_string(rank);
    config.train.num_threads = config.data.num_threads = rank + 1;
    if (rank == 1) config.train.device = "cpu";
    config.train.dtype = rank == 2 ? "bfloat16" : "float32";
    config.train.dtype_was_auto = true;
  });
  EXPECT_EQ(texts, std::vector<std::string>(3));
}

TEST(SameSettings, ThatDifferAreToldToAllRanksWithTheRankTheFieldAndBothValues) {
  const auto texts = told([](RunConfig& config, int rank) {
    if (rank == 2) config.optimizer.lr = 0.5;
    if (rank == 1) config.train.seed = 9;
  });
  for (const auto& text : texts) {
    EXPECT_EQ(text, texts[0]);
    for (const char* part : {"rank 1 (", "train.seed was 1, is 9", "rank 2 (", "optimizer.lr was 0.0004, is 0.5",
                             "start all ranks with the same file"})
      EXPECT_NE(text.find(part), text.npos) << part << " in " << text;
  }
}

TEST(SameSettings, OptionsOfACommandThatDifferAreToldToAllRanksInTheSameWords) {
  std::vector<std::string> texts(3);
  comm::run_ranks(3, [&](comm::World& world) {
    const auto require = [&](const std::string& steps) {
      require_same_options({{"--steps", steps}, {"--dtype", ""}}, world);
    };
    require("4");
    try {
      require(world.rank() == 1 ? "5" : "4");
    } catch (const ConfigError& error) {
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find(") has other settings than rank 0: --steps was \"4\", is \"5\"; start all ranks with the same"),
              std::string::npos)
        << text;
    EXPECT_TRUE(text.starts_with("rank 1 (")) << text;
  }
}

}  // namespace
}  // namespace athanor::same_settings_test
