#include "run/validation.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "memory/preflight.h"
#include "train/testing/prepared_data.h"

namespace athanor::validation_test {
namespace {

class ValidationInterval : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    config_.model.num_experts = 4;
    config_.model.num_experts_per_tok = 2;
    config_.model.vocab_size = 64;
    config_.data.seq_len = 8;
    config_.train.run_dir = (folder_ / "run").string();
    write_prepared_data(folder_ / "with", config_);
    write_prepared_data(folder_ / "without", config_, /*with_validation=*/false);
    config_.train.validation_interval.is_auto = true;
  }

  // Opens the data of a run with a training phase for each folder.
  std::vector<StageData> settled(const std::vector<std::string>& folders) {
    config_.train.stages.clear();
    for (const auto& name : folders) {
      StageConfig stage;
      stage.steps = 10;
      stage.path = (folder_ / name).string();
      config_.train.stages.push_back(stage);
    }
    RunData data = open_run_data(config_);
    settle_validation_interval(config_, data.stages, {});
    return std::move(data.stages);
  }

  RunConfig config_;
};

TEST_F(ValidationInterval, IsDerivedFromTheDataOfAllPhases) {
  EXPECT_EQ(settled({"without", "with"})[0].stage.config.train.validation_interval, CountOrAuto(250));
  EXPECT_EQ(config_.train.validation_interval, CountOrAuto(250));
  config_.train.validation_interval.is_auto = true;
  settled({"without", "without"});
  EXPECT_EQ(config_.train.validation_interval, CountOrAuto(0));
}

TEST_F(ValidationInterval, ANumberIsRefusedOnlyIfNoPhaseHasValidationInstances) {
  config_.train.validation_interval = 7;
  settled({"with", "without"});
  EXPECT_EQ(config_.train.validation_interval, CountOrAuto(7));
  EXPECT_THROW(settled({"without"}), ConfigError);
  config_.train.validation_interval = 0;
  EXPECT_NO_THROW(settled({"without"}));
}

TEST_F(ValidationInterval, CommandsThatReadNoInstancesTakeTheirLengthFromTheData) {
  RunConfig plan = config_;
  plan.data.seq_len = 0;
  EXPECT_THROW(take_seq_len_of_data(plan), ConfigError) << "there are no data";
  plan.data.path = (folder_ / "with").string();
  take_seq_len_of_data(plan);
  EXPECT_EQ(plan.data.seq_len, 8);
  plan.data.seq_len = 16;
  take_seq_len_of_data(plan);
  EXPECT_EQ(plan.data.seq_len, 16) << "set by the user";
}

}  // namespace
}  // namespace athanor::validation_test
