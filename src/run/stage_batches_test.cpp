#include "run/stage_batches.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "train/testing/layout_cases.h"
#include "train/testing/prepared_data.h"

namespace athanor::stage_batches_test {
namespace {

class StageBatchesTest : public FolderTest {
 protected:
  StageBatchesTest() {
    config_ = config_with({.name = ""});
    write_prepared_data(folder_ / "data", config_);
    config_.data.path = (folder_ / "data").string();
    config_.train.run_dir = (folder_ / "run").string();
    for (const char* name : {"a", "b"}) {
      StageConfig& phase = config_.train.stages.emplace_back();
      phase.name = name;
      phase.steps = 5;
    }
    config_.train.steps = 10;
  }

  // Whether what a run knows of its losses is kept if it continues after `step`, before which `batches` were drawn.
  bool keeps_spikes(int64_t step, int batches, bool other_mix) {
    TrainState state(config_, {});
    const auto stages = [&] { return open_run_data(config_).stages; };
    StageBatches first(state, state.model.mesh, stages());
    first.enter();
    for (int i = 0; i < batches; ++i) state.position.ledger = first.take().next;
    if (other_mix) state.position.ledger.mix.clear();
    state.position.step = step;
    state.position.spikes.take(step, 3, 1);
    StageBatches(state, state.model.mesh, stages()).enter();
    return !state.position.spikes.is_empty();
  }

  RunConfig config_;
};

TEST_F(StageBatchesTest, APhaseAndANewMixForgetWhatLossesWereAndAResumeDoesNot) {
  EXPECT_TRUE(keeps_spikes(3, 3, false));
  EXPECT_FALSE(keeps_spikes(3, 3, true));
  EXPECT_FALSE(keeps_spikes(5, 5, false)) << "the second phase begins";
  EXPECT_TRUE(keeps_spikes(7, 5, false));
}

TEST_F(StageBatchesTest, TheSizesOfARampAreOnePhase) {
  config_.train.stages.clear();
  const auto sequences = config_.train.global_batch_size;
  config_.train.global_batch_size = 2 * sequences;
  config_.train.batch_ramp = {
      {.sequences = sequences, .until_tokens = 5.0 * static_cast<double>(sequences * config_.data.seq_len)}};
  EXPECT_TRUE(keeps_spikes(5, 5, false));
}

}  // namespace
}  // namespace athanor::stage_batches_test
