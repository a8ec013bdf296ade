#include "train/run_history.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/missing_ranks.h"
#include "base/testing/folder_test.h"
#include "config/dump.h"
#include "train/beginning.h"
#include "train/last_words.h"
#include "train/run_folder.h"

namespace athanor::run_history_test {
namespace {

namespace fs = std::filesystem;

class RunHistoryTest : public FolderTest {
 protected:
  fs::path events() const { return folder_ / "events.jsonl"; }
  std::vector<nlohmann::json> lines() const {
    std::istringstream text(read_file(events()));
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  RunConfig config(const std::string& resume = "auto") const {
    RunConfig c;
    c.train.run_dir = folder_.string();
    c.checkpoint.resume = resume;
    return c;
  }
  void add_full(int64_t step) const { add(fmt::format("checkpoints/step-{:08}/manifest.json", step)); }
  void add_model(int64_t step) const { add(fmt::format("models/step-{:08}/config.json", step)); }
  void add(const std::string& name) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "{}";
  }
  template <class E>
  std::string refusal(const RunConfig& config) const {
    try {
      plan_beginning(config).require_allowed();
    } catch (const E& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(RunHistoryTest, LinesAreAddedAndReadBackWhateverWasTornBetween) {
  EXPECT_FALSE(read_history(events()).known);
  EventLog(events(), 1).add("start", 0, {{"asked", "models/step-00000004"}});
  EXPECT_EQ(read_history(events()).asked, "models/step-00000004");
  std::ofstream(events(), std::ios::app) << R"({"event":"sa)";
  EventLog log(events(), 2);
  log.add("resume", 4);
  EXPECT_FALSE(read_history(events()).saved);
  log.add("save", 6);
  log.add("end", 8, {{"exit_code", 0}});
  const RunHistory history = read_history(events());
  EXPECT_TRUE(history.known && history.saved && history.saved_since_asked && history.complete);
  EXPECT_EQ(history.attempts, 2);
  EXPECT_EQ(history.asked, "models/step-00000004");
}

TEST_F(RunHistoryTest, AnAttemptThatNobodyCountedToIsNotGoneOnFrom) {
  EventLog(events(), 2).add("start", 0);
  EventLog(events(), INT64_MAX).add("resume", 4);
  std::ofstream(events(), std::ios::app) << R"({"event":"resume","attempt":18446744073709551615,"step":4})"
                                         << "\n";
  EXPECT_EQ(plan_beginning(config()).attempt, 3);
}

TEST_F(RunHistoryTest, ADiskThatTakesNoLineIsNoError) {
  fs::create_directories(folder_);
  fs::create_symlink("/dev/full", events());
  EventLog log(events(), 1);
  log.add("start", 0);
  log.add("save", 3);
}

TEST_F(RunHistoryTest, OfRanksThatFailTheFirstHasTheLastWord) {
  fs::create_directories(folder_ / "log");
  RunContext at;
  leave_last_words(at, 0, "node1", {"a start that is refused", 2});
  EXPECT_TRUE(fs::is_empty(folder_ / "log"));
  at.run_dir = folder_;
  at.attempt = 3;
  at.step = 12;
  at.phase = "step";
  leave_last_words(at, 5, "node7", {"step 12: the loss is nan", exit_code::kNumbersEverywhere, "model.norm.weight"});
  leave_last_words(at, 0, "node1", {"rank 5 is gone", exit_code::kCollective});
  const nlohmann::json words = nlohmann::json::parse(read_file(RunFolder{folder_}.last_words()));
  EXPECT_EQ(words["rank"], 5);
  EXPECT_EQ(words["host"], "node7");
  EXPECT_EQ(words["cause"], "numbers");
  EXPECT_EQ(words["tensor"], "model.norm.weight");
  EXPECT_EQ(words["exit_code"], 76);
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_EQ(lines()[0]["rank"], 5);
  set_aside_last_words(folder_, 3);
  EXPECT_FALSE(fs::exists(RunFolder{folder_}.last_words()));
  EXPECT_TRUE(fs::exists(folder_ / "log" / "last-words-003.json"));
}

TEST_F(RunHistoryTest, LastWordsOfACollectiveHaveTheRanksThatAreMissing) {
  fs::create_directories(folder_ / "log");
  RunContext at;
  at.run_dir = folder_;
  const auto failure =
      describe_failure(std::make_exception_ptr(MissingRanks("missing: rank 5 (node7)", {{5, "node7"}})));
  leave_last_words(at, 0, "node1", failure);
  const nlohmann::json words = nlohmann::json::parse(read_file(RunFolder{folder_}.last_words()));
  EXPECT_EQ(words["rank"], 0) << "who reports it";
  EXPECT_EQ(words["missing"], (nlohmann::json{{{"rank", 5}, {"host", "node7"}}}));
}

TEST_F(RunHistoryTest, WhatWasKeptStaysWhereTheCountOfAttemptsWasLost) {
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
  const auto opened = open_run_folder({back, plan_beginning(back), 4, {}, ""});
  EXPECT_EQ(opened.abandoned, std::vector{(folder_ / "models/abandoned-002/step-00000008").string()});
  for (const char* name : {"metrics-000.jsonl", "log/last-words-000.json", "configs/config-000.toml"})
    EXPECT_EQ(read_file(folder_ / name), "earlier") << name;
  for (const char* name : {"metrics-001.jsonl", "log/last-words-001.json", "configs/config-001.toml"})
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(RunHistoryTest, MetricsOfStepsThatComeAgainAreKeptUnlessTheRunGoesOn) {
  for (const char* model : {"run/models/step-00000004", "other"}) add(fmt::format("{}/config.json", model));
  const std::string told = "{\"step\":4}\n{\"step\":5}\n";
  const fs::path root = folder_ / "run", kept = root / "metrics-001.jsonl";
  write_file_atomically(root / "metrics.jsonl", told);
  EventLog(root / "events.jsonl", 1).add("start", 0);
  const auto keeps = [&](const fs::path& resume, int64_t step) {
    RunConfig run = config(resume.string());
    run.train.run_dir = root.string();
    open_run_folder({run, plan_beginning(run), step, {}, ""});
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

TEST_F(RunHistoryTest, AConfigurationThatCannotBeReadIsFoundBeforeTheFolderChanges) {
  for (const int64_t step : {4, 8}) add_model(step);
  fs::create_directories(folder_ / "config.toml");
  const RunConfig back = config((folder_ / "models" / "step-00000004").string());
  EXPECT_SAYS(message_of<IoError>([&] { open_run_folder({back, plan_beginning(back), 4, {}, ""}); }), "config.toml");
  EXPECT_FALSE(fs::exists(folder_ / "models" / "abandoned-001") || fs::exists(folder_ / "checkpoints"));
}

TEST_F(RunHistoryTest, WhatIsNewestAndFullIsResumedAndModelsAloneToo) {
  EXPECT_EQ(plan_beginning(config()).from, Beginning::From::kNothing);
  add_model(400);
  const Beginning model = Beginning::from_text(plan_beginning(config()).to_text());
  EXPECT_EQ(model.from, Beginning::From::kPath);
  EXPECT_EQ(model.path.filename(), "step-00000400");
  EXPECT_EQ(model.notes.size(), 1u);
  add_full(300);
  EXPECT_EQ(plan_beginning(config()).from, Beginning::From::kNewest);
  RunConfig models_alone = config();
  models_alone.checkpoint.interval = 0;
  EXPECT_EQ(plan_beginning(models_alone).path.filename(), "step-00000400");
}

TEST_F(RunHistoryTest, AFolderWithoutAnythingToGoOnFromIsRefusedUnlessNothingWasEverSaved) {
  add("metrics.jsonl");
  EXPECT_NE(refusal<CheckpointError>(config()).find("and no checkpoint to continue from"), std::string::npos);
  EventLog log(events(), 1);
  log.add("start", 0);
  EXPECT_EQ(plan_beginning(config()).from, Beginning::From::kNothing);
  EXPECT_EQ(plan_beginning(config()).attempt, 2);
  log.add("save", 3);
  EXPECT_NE(refusal<CheckpointError>(config()).find("checkpoints are gone"), std::string::npos);
  EXPECT_NE(refusal<ConfigError>(config("never")).find("holds a run already"), std::string::npos);
}

TEST_F(RunHistoryTest, WhatOnlyARunLeavesIsNotBegunUpon) {
  for (const char* name : {"tokenizer.json", "log/train.log", "metrics-001.jsonl", "configs/config-001.toml",
                           "models/abandoned-002/step-00000008/config.json"}) {
    add(name);
    EXPECT_SAYS(refusal<CheckpointError>(config()), "of a run, but no history") << name;
    EXPECT_SAYS(refusal<ConfigError>(config("never")), "holds a run already") << name;
    fs::remove_all(folder_ / *fs::path(name).begin());
  }
  for (const char* name : {"config.toml", "log/of-mine.txt", "notes.txt"}) add(name);
  EXPECT_EQ(plan_beginning(config()).from, Beginning::From::kNothing);
}

TEST_F(RunHistoryTest, AStartThatIsCutWhileItOpensTheFolderMayBeRepeated) {
  add("data/tokenizer.json");
  const RunConfig run = config();
  open_run_folder({run, plan_beginning(run), 0, folder_ / "data/tokenizer.json", ""});
  EXPECT_TRUE(fs::exists(folder_ / "tokenizer.json"));  // and killed here, before its first event
  EXPECT_EQ(plan_beginning(run).from, Beginning::From::kNothing);
}

TEST_F(RunHistoryTest, APlaceInsideIsGoneBackToOnceAndWhatIsNewerIsNamed) {
  for (const int64_t step : {500, 1000, 1500}) add_model(step);
  for (const int64_t step : {1000, 1500}) add_full(step);
  const std::string place = (folder_ / "models" / "step-00001000").string();
  const Beginning back = plan_beginning(config(place + "/"));
  EXPECT_EQ(back.from, Beginning::From::kPath);
  EXPECT_EQ(back.asked, "models/step-00001000");
  EXPECT_EQ(back.abandoned.size(), 3u);  // the full checkpoints of 1000 and 1500, the model of 1500
  EventLog log(events(), 1);
  log.add("went_back", 1000, {{"asked", back.asked}});
  EXPECT_EQ(plan_beginning(config()).asked, back.asked);  // killed before it saved
  log.add("save", 1500);
  EXPECT_EQ(plan_beginning(config(place)).from, Beginning::From::kNewest);
  const Beginning full = plan_beginning(config((folder_ / "checkpoints" / "step-00001000").string()));
  EXPECT_EQ(full.abandoned.size(), 2u);  // both of 1500
  EXPECT_NE(refusal<ConfigError>(config((folder_ / "models").string())).find("neither a checkpoint"),
            std::string::npos);
}

TEST_F(RunHistoryTest, ModelsOnAnotherDiskAreGoneBackTo) {
  for (const char* model : {"step-00000004", "step-00000008"}) add(fmt::format("disk/{}/config.json", model));
  fs::create_directories(folder_ / "run");
  fs::create_directory_symlink(folder_ / "disk", folder_ / "run" / "models");
  for (const char* path : {"run/models/step-00000004", "disk/step-00000004/"}) {
    RunConfig run = config((folder_ / path).string());
    run.train.run_dir = (folder_ / "run").string();
    const Beginning back = plan_beginning(run);
    EXPECT_EQ(back.asked, "models/step-00000004") << path;
    EXPECT_EQ(back.abandoned, std::vector<fs::path>{folder_ / "run" / "models" / "step-00000008"});
  }
}

TEST_F(RunHistoryTest, TheRunsFolderItselfIsNoPlaceToGoBackTo) {
  add_model(4);
  for (const auto& path : {folder_, folder_ / "models" / ".."})
    EXPECT_SAYS(refusal<ConfigError>(config(path.string())), "is the run's own folder");
}

TEST_F(RunHistoryTest, WhatWasLeftBehindAtAReturnIsOfAnotherCourse) {
  add_model(4);
  add("checkpoints/abandoned-002/step-00000008/manifest.json");
  const auto path = (folder_ / "checkpoints" / "abandoned-002" / "step-00000008").string();
  EXPECT_SAYS(refusal<ConfigError>(config(path)), "belong to another branch");
}

TEST_F(RunHistoryTest, AnotherCourseFromTheSamePlaceIsAnotherRequest) {
  for (const int64_t step : {4, 8}) add_model(step);
  RunConfig run = config((folder_ / "models" / "step-00000004").string());
  EventLog log(events(), 2);
  log.add("went_back", 4, {{"asked", "models/step-00000004"}});
  log.add("save", 8);
  write_file_atomically(folder_ / "config.toml", dump_run_config(run));
  const Beginning same = plan_beginning(run);
  EXPECT_TRUE(same.asked.empty());
  EXPECT_SAYS(same.notes.back(), "to go back once more");
  run.train.steps += 10;  // longer, in another folder, and with values that the data determine: the same branch
  run.train.num_threads = 3;
  run.data.seq_len = 0;
  EXPECT_TRUE(plan_beginning(run).asked.empty());
  run.optimizer.lr = 0.25;
  const Beginning other = plan_beginning(run);
  EXPECT_EQ(other.asked, "models/step-00000004");
  EXPECT_EQ(other.abandoned.size(), 1u);
  EXPECT_SAYS(other.notes.back(), "for another branch: optimizer.lr was");
}

TEST_F(RunHistoryTest, FullCheckpointsOfBeforeTheReturnDoNotCountUntilOneIsWritten) {
  add_full(900);
  for (const int64_t step : {1000, 1200}) add_model(step);
  EventLog log(events(), 2);
  log.add("went_back", 1000, {{"asked", "models/step-00001000"}});
  log.add("save", 1200, {{"kind", "model"}});
  EXPECT_EQ(plan_beginning(config()).path.filename(), "step-00001200");
  add_full(1500);
  EXPECT_EQ(plan_beginning(config()).from, Beginning::From::kNewest);
}

}  // namespace
}  // namespace athanor::run_history_test
