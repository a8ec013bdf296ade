#include "layout/fitted_batch.h"

#include <gtest/gtest.h>

#include <tuple>

#include "base/testing/folder_test.h"
#include "config/toml_reader.h"

namespace athanor::fitted_batch_test {
namespace {

RunConfig read(const std::string& train) { return parse_run_config("[train]\n" + train, "run.toml"); }

TEST(FittedBatch, AMicrobatchThatIsNotSetIsTheLargestThatDividesTheSequencesOfADataRank) {
  for (const auto& [batch, ranks, fitted] :
       {std::tuple(16, 1, 4), {16, 4, 4}, {16, 8, 2}, {16, 16, 1}, {12, 4, 3}, {20, 2, 2}}) {
    RunConfig config = read("global_batch_size = " + std::to_string(batch));
    EXPECT_TRUE(fit_to_ranks(config, ranks).empty()) << batch << " on " << ranks;
    EXPECT_EQ(config.train.micro_batch_size, fitted) << batch << " on " << ranks;
  }
}

TEST(FittedBatch, ABatchThatTheDataRanksDoNotDivideIsRefusedWithOneThatTheyDo) {
  RunConfig config = read("global_batch_size = 10");
  const auto faults = fit_to_ranks(config, 4);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_SAYS(faults[0], "train.global_batch_size (10) is not a multiple of 4 data ranks: set it to 8 or 12");
  for (const char* batch : {"8", "12"}) {
    RunConfig mended = read(std::string("global_batch_size = ") + batch);
    EXPECT_TRUE(fit_to_ranks(mended, 4).empty());
  }
}

TEST(FittedBatch, AMicrobatchThatIsSetStays) {
  RunConfig config = read("global_batch_size = 16\nmicro_batch_size = 4");
  const auto faults = fit_to_ranks(config, 8);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_SAYS(faults[0], "is not a multiple of 8 data ranks × train.micro_batch_size (4) = 32: set it to 32");
  EXPECT_EQ(config.train.micro_batch_size, 4);
}

TEST(FittedBatch, APhaseWithABatchOfItsOwnAndTheSizesOfARampAreFittedToo) {
  RunConfig phases = read(
      "global_batch_size = 16\n[[train.stages]]\nname = \"a\"\nsteps = 4\n[[train.stages]]\nname = \"b\"\nsteps = "
      "4\nglobal_batch_size = 8\n");
  EXPECT_TRUE(fit_to_ranks(phases, 8).empty());
  EXPECT_EQ(phases.train.micro_batch_size, 2);
  EXPECT_EQ(phases.train.stages[1].micro_batch_size, 1);
  RunConfig ramp = read(
      "steps = 20\nglobal_batch_size = 16\n[[train.batch_ramp]]\nsequences = 8\nuntil_tokens = 1e4\n[data]\nseq_len = "
      "32\n");
  fit_to_ranks(ramp, 4);
  EXPECT_EQ(ramp.train.micro_batch_size, 2);
}

}  // namespace
}  // namespace athanor::fitted_batch_test
