#include "record/run_history.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/files.h"
#include "base/missing_ranks.h"
#include "base/testing/folder_test.h"
#include "record/last_words.h"
#include "record/run_folder.h"

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
  EXPECT_EQ(read_history(events()).attempts, 2);
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
  RunMoment at;
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
  RunMoment at;
  at.run_dir = folder_;
  const auto failure =
      describe_failure(std::make_exception_ptr(MissingRanks("missing: rank 5 (node7)", {{5, "node7"}})));
  leave_last_words(at, 0, "node1", failure);
  const nlohmann::json words = nlohmann::json::parse(read_file(RunFolder{folder_}.last_words()));
  EXPECT_EQ(words["rank"], 0) << "who reports it";
  EXPECT_EQ(words["missing"], (nlohmann::json{{{"rank", 5}, {"host", "node7"}}}));
}

}  // namespace
}  // namespace athanor::run_history_test
