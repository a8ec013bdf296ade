#include "run/open_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "record/run_history.h"
#include "saves/testing/saved_steps.h"

namespace athanor::open_folder_test {
namespace {

namespace fs = std::filesystem;

using OpenFolder = SavedSteps;

TEST_F(OpenFolder, WhatWasKeptStaysWhereTheCountOfAttemptsWasLost) {
  for (const int64_t step : {4, 8}) add_model(step);
  const auto write = [&](const char* name, const char* text) { write_file_atomically(folder_ / name, text); };
  add("models/abandoned-001/step-00000008/config.json");
  add("log/last-words.json");
  for (const char* name : {"metrics-000.jsonl", "log/last-words-000.json", "configs/config-000.toml"}) {
    add(name);
    write(name, "earlier");
  }
  write("metrics.jsonl", "{\"step\":8}\n");
  write("config.toml", "[optimizer]\nlr = 0.5\n");
  const RunConfig back = config((folder_ / "models" / "step-00000004").string());
  const auto opened = open_run_folder({back, plan_resume_point(back), 4, {}, ""});
  EXPECT_EQ(opened.abandoned, std::vector{(folder_ / "models/abandoned-002/step-00000008").string()});
  for (const char* name : {"metrics-000.jsonl", "log/last-words-000.json", "configs/config-000.toml"})
    EXPECT_EQ(read_file(folder_ / name), "earlier") << name;
  for (const char* name : {"metrics-001.jsonl", "log/last-words-001.json", "configs/config-001.toml"})
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(OpenFolder, MetricsOfStepsThatComeAgainAreKeptUnlessTheRunGoesOn) {
  for (const char* model : {"run/models/step-00000004", "other"}) add(fmt::format("{}/config.json", model));
  const std::string told = "{\"step\":4}\n{\"step\":5}\n";
  const fs::path root = folder_ / "run", kept = root / "metrics-001.jsonl";
  write_file_atomically(root / "metrics.jsonl", told);
  EventLog(root / "events.jsonl", 1).add("start", 0);
  const auto keeps = [&](const fs::path& resume, int64_t step) {
    RunConfig run = config(resume.string());
    run.train.run_dir = root.string();
    open_run_folder({run, plan_resume_point(run), step, {}, ""});
    return fs::exists(kept);
  };
  EXPECT_FALSE(keeps("auto", 4));  // killed after step 5, which comes again
  EXPECT_FALSE(keeps(root / "models" / "step-00000004", 5));
  EXPECT_TRUE(keeps(root / "models" / "step-00000004", 4));  // though nothing newer was saved
  EXPECT_EQ(read_file(kept), told);
  fs::remove(kept);
  fs::remove_all(root / "models");
  EXPECT_TRUE(keeps(folder_ / "other", 0));  // killed before it saved, and begun from another run
}

TEST_F(OpenFolder, AConfigurationThatCannotBeReadIsFoundBeforeTheFolderChanges) {
  for (const int64_t step : {4, 8}) add_model(step);
  fs::create_directories(folder_ / "config.toml");
  const RunConfig back = config((folder_ / "models" / "step-00000004").string());
  EXPECT_SAYS(message_of<IoError>([&] { open_run_folder({back, plan_resume_point(back), 4, {}, ""}); }), "config.toml");
  EXPECT_FALSE(fs::exists(folder_ / "models" / "abandoned-001") || fs::exists(folder_ / "checkpoints"));
}

TEST_F(OpenFolder, AStartThatIsCutWhileItOpensTheFolderMayBeRepeated) {
  add("data/tokenizer.json");
  const RunConfig run = config();
  open_run_folder({run, plan_resume_point(run), 0, folder_ / "data/tokenizer.json", ""});
  EXPECT_TRUE(fs::exists(folder_ / "tokenizer.json"));  // and killed here, before its first event
  EXPECT_EQ(plan_resume_point(run).from, ResumePoint::From::kNothing);
}

}  // namespace
}  // namespace athanor::open_folder_test
