#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "config/dump.h"
#include "record/run_history.h"
#include "saves/resume_point.h"
#include "saves/testing/saved_steps.h"

namespace athanor::resume_point_plan_test {
namespace {

namespace fs = std::filesystem;

class BeginningPlan : public SavedSteps {
 protected:
  template <class E>
  std::string refusal(const RunConfig& config) const {
    try {
      plan_resume_point(config).require_allowed();
    } catch (const E& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(BeginningPlan, WhatIsNewestAndFullIsResumedAndModelsAloneToo) {
  EXPECT_EQ(plan_resume_point(config()).from, ResumePoint::From::kNothing);
  add_model(400);
  const ResumePoint model = ResumePoint::from_text(plan_resume_point(config()).to_text());
  EXPECT_EQ(model.from, ResumePoint::From::kPath);
  EXPECT_EQ(model.path.filename(), "step-00000400");
  EXPECT_EQ(model.notes.size(), 1u);
  add_full(300);
  EXPECT_EQ(plan_resume_point(config()).from, ResumePoint::From::kNewest);
  RunConfig models_alone = config();
  models_alone.checkpoint.interval = 0;
  EXPECT_EQ(plan_resume_point(models_alone).path.filename(), "step-00000400");
}

TEST_F(BeginningPlan, AFolderWithoutAnythingToGoOnFromIsRefusedUnlessNothingWasEverSaved) {
  add("metrics.jsonl");
  EXPECT_NE(refusal<CheckpointError>(config()).find("and no checkpoint to continue from"), std::string::npos);
  EventLog log(events(), 1);
  log.add("start", 0);
  EXPECT_EQ(plan_resume_point(config()).from, ResumePoint::From::kNothing);
  EXPECT_EQ(plan_resume_point(config()).attempt, 2);
  log.add("save", 3);
  EXPECT_NE(refusal<CheckpointError>(config()).find("checkpoints are gone"), std::string::npos);
  EXPECT_NE(refusal<ConfigError>(config("never")).find("holds a run already"), std::string::npos);
}

TEST_F(BeginningPlan, WhatOnlyARunLeavesIsNotBegunUpon) {
  for (const char* name : {"tokenizer.json", "log/train.log", "metrics-001.jsonl", "configs/config-001.toml",
                           "models/abandoned-002/step-00000008/config.json"}) {
    add(name);
    EXPECT_SAYS(refusal<CheckpointError>(config()), "of a run, but no history") << name;
    EXPECT_SAYS(refusal<ConfigError>(config("never")), "holds a run already") << name;
    fs::remove_all(folder_ / *fs::path(name).begin());
  }
  for (const char* name : {"config.toml", "log/of-mine.txt", "notes.txt"}) add(name);
  EXPECT_EQ(plan_resume_point(config()).from, ResumePoint::From::kNothing);
}

TEST_F(BeginningPlan, APlaceInsideIsGoneBackToOnceAndWhatIsNewerIsNamed) {
  for (const int64_t step : {500, 1000, 1500}) add_model(step);
  for (const int64_t step : {1000, 1500}) add_full(step);
  const std::string place = (folder_ / "models" / "step-00001000").string();
  const ResumePoint back = plan_resume_point(config(place + "/"));
  EXPECT_EQ(back.from, ResumePoint::From::kPath);
  EXPECT_EQ(back.asked, "models/step-00001000");
  EXPECT_EQ(back.abandoned.size(), 3u);  // the full checkpoints of 1000 and 1500, the model of 1500
  EventLog log(events(), 1);
  log.add("went_back", 1000, {{"asked", back.asked}});
  EXPECT_EQ(plan_resume_point(config()).asked, back.asked);  // killed before it saved
  log.add("save", 1500);
  EXPECT_EQ(plan_resume_point(config(place)).from, ResumePoint::From::kNewest);
  const ResumePoint full = plan_resume_point(config((folder_ / "checkpoints" / "step-00001000").string()));
  EXPECT_EQ(full.abandoned.size(), 2u);  // both of 1500
  EXPECT_NE(refusal<ConfigError>(config((folder_ / "models").string())).find("neither a checkpoint"),
            std::string::npos);
}

TEST_F(BeginningPlan, ModelsOnAnotherDiskAreGoneBackTo) {
  for (const char* model : {"step-00000004", "step-00000008"}) add(fmt::format("disk/{}/config.json", model));
  fs::create_directories(folder_ / "run");
  fs::create_directory_symlink(folder_ / "disk", folder_ / "run" / "models");
  for (const char* path : {"run/models/step-00000004", "disk/step-00000004/"}) {
    RunConfig run = config((folder_ / path).string());
    run.train.run_dir = (folder_ / "run").string();
    const ResumePoint back = plan_resume_point(run);
    EXPECT_EQ(back.asked, "models/step-00000004") << path;
    EXPECT_EQ(back.abandoned, std::vector<fs::path>{folder_ / "run" / "models" / "step-00000008"});
  }
}

TEST_F(BeginningPlan, TheRunsFolderItselfIsNoPlaceToGoBackTo) {
  add_model(4);
  for (const auto& path : {folder_, folder_ / "models" / ".."})
    EXPECT_SAYS(refusal<ConfigError>(config(path.string())), "is the run's own folder");
}

TEST_F(BeginningPlan, WhatWasLeftBehindAtAReturnIsOfAnotherCourse) {
  add_model(4);
  add("checkpoints/abandoned-002/step-00000008/manifest.json");
  const auto path = (folder_ / "checkpoints" / "abandoned-002" / "step-00000008").string();
  EXPECT_SAYS(refusal<ConfigError>(config(path)), "belong to another branch");
}

TEST_F(BeginningPlan, AnotherCourseFromTheSamePlaceIsAnotherRequest) {
  for (const int64_t step : {4, 8}) add_model(step);
  RunConfig run = config((folder_ / "models" / "step-00000004").string());
  EventLog log(events(), 2);
  log.add("went_back", 4, {{"asked", "models/step-00000004"}});
  log.add("save", 8);
  write_file_atomically(folder_ / "config.toml", dump_run_config(run));
  const ResumePoint same = plan_resume_point(run);
  EXPECT_TRUE(same.asked.empty());
  EXPECT_SAYS(same.notes.back(), "to go back once more");
  run.train.steps += 10;  // longer, in another folder, and with values that the data determine: the same branch
  run.train.num_threads = 3;
  run.data.seq_len = 0;
  EXPECT_TRUE(plan_resume_point(run).asked.empty());
  run.optimizer.lr = 0.25;
  const ResumePoint other = plan_resume_point(run);
  EXPECT_EQ(other.asked, "models/step-00000004");
  EXPECT_EQ(other.abandoned.size(), 1u);
  EXPECT_SAYS(other.notes.back(), "for another branch: optimizer.lr was");
}

TEST_F(BeginningPlan, FullCheckpointsOfBeforeTheReturnDoNotCountUntilOneIsWritten) {
  add_full(900);
  for (const int64_t step : {1000, 1200}) add_model(step);
  EventLog log(events(), 2);
  log.add("went_back", 1000, {{"asked", "models/step-00001000"}});
  log.add("save", 1200, {{"kind", "model"}});
  EXPECT_EQ(plan_resume_point(config()).path.filename(), "step-00001200");
  add_full(1500);
  EXPECT_EQ(plan_resume_point(config()).from, ResumePoint::From::kNewest);
}

}  // namespace
}  // namespace athanor::resume_point_plan_test
