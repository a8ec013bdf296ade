#include "board/stack_request.h"

#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <optional>

#include "base/error.h"
#include "board/own_stack.h"
#include "board/place.h"
#include "board/process_state.h"
#include "board/shown_stacks.h"
#include "board/testing/collector_test.h"

namespace athanor::board {
namespace {

namespace fs = std::filesystem;

TEST(StackRequestTexts, WhatIsWrittenIsWhatIsRead) {
  const StackRequest request = parse_request(to_text(StackRequest{1.5, {{3, 17, "n1"}, {4, 18, "n2.example"}}}));
  EXPECT_EQ(request.time, 1.5);
  EXPECT_EQ(request.ranks, (std::vector<AskedRank>{{3, 17, "n1"}, {4, 18, "n2.example"}}));
  const StackAnswer answer = parse_answer(to_text(StackAnswer{true, {{3, 17, "debugger", "thread 17\n"}}}));
  EXPECT_TRUE(answer.is_whole);
  ASSERT_EQ(answer.stacks.size(), 1u);
  EXPECT_EQ(answer.stacks[0].text, "thread 17\n");
  for (const char* text : {"", "{}", "[1]", R"({"format": 2, "time": 1, "ranks": []})", R"({"format": 1, "time": 1})",
                           R"({"format": 1, "time": "x", "ranks": []})", R"({"format": 1, "time": 1, "ranks": [{}]})"})
    EXPECT_THROW(parse_request(text), DataError) << text;
  EXPECT_THROW(parse_answer(R"({"format": 1, "whole": true})"), DataError);
}

// What a collector finds in the run's folder.
class RequestWatchTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    fs::create_directories(requests_of(folder_));
    watch_.emplace(folder_, "n1");
  }
  fs::path place(const std::string& name, const std::string& text) const {
    fs::create_directory(requests_of(folder_) / name);
    EXPECT_TRUE(replace_unsynced(requests_of(folder_) / name / kRequestFile, text));
    return requests_of(folder_) / name;
  }
  std::optional<RequestWatch> watch_;
};

TEST_F(RequestWatchTest, ARequestIsFoundOnceByTheNodesOfItsRanks) {
  RequestWatch other(folder_, "n2"), third(folder_, "n3");
  EXPECT_TRUE(watch_->look(1000).empty());
  const fs::path folder = place("a", to_text(StackRequest{1000, {{0, 10, "n1"}, {5, 11, "n2"}, {1, 12, "n1"}}}));
  const auto found = watch_->look(1001);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].folder, folder);
  EXPECT_EQ(found[0].ranks, (std::vector<AskedRank>{{0, 10, "n1"}, {1, 12, "n1"}}));
  EXPECT_TRUE(watch_->look(1002).empty()) << "it was found before";
  ASSERT_EQ(other.look(1002).size(), 1u);
  EXPECT_TRUE(third.look(1002).empty());
  place("b", to_text(StackRequest{1002, {{0, 10, "n1"}}}));
  EXPECT_EQ(watch_->look(1003).size(), 1u) << "two ask at once";
}

TEST_F(RequestWatchTest, AnOldRequestIsNotAnsweredAndIsRemovedByTheFirstNodeThatItNames) {
  const fs::path folder = place("old", to_text(StackRequest{1000, {{5, 11, "n2"}, {0, 10, "n1"}}}));
  RequestWatch first(folder_, "n2");
  EXPECT_TRUE(watch_->look(1001 + kRequestLife_s).empty());
  EXPECT_TRUE(fs::exists(folder)) << "a thousand nodes would remove it at once";
  EXPECT_TRUE(first.look(1001 + kRequestLife_s).empty());
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(RequestWatchTest, WhatIsNoRequestIsLeftAloneAndOneThatIsNotWholeIsLookedAtAgain) {
  place("wrong", "{");
  fs::create_directory(requests_of(folder_) / "later");
  fs::create_symlink("/", requests_of(folder_) / "link");
  write("board/requests/file", "");
  place(".hidden", to_text(StackRequest{1000, {{0, 10, "n1"}}}));
  fs::create_directories(requests_of(folder_) / "pipe");
  ASSERT_EQ(::mkfifo((requests_of(folder_) / "pipe" / kRequestFile).c_str(), 0600), 0);
  EXPECT_TRUE(watch_->look(1000).empty()) << "and no one who writes into the pipe is waited for";
  place("later", to_text(StackRequest{1000, {{0, 10, "n1"}}}));
  EXPECT_EQ(watch_->look(1001).size(), 1u);
}

TEST_F(RequestWatchTest, ARequestOfAnotherUserIsNotAnswered) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make what another user made";
  const std::string text = to_text(StackRequest{1000, {{0, 10, "n1"}}});
  const fs::path folder = place("a", text), file = place("b", text) / kRequestFile;
  ASSERT_EQ(::chown(folder.c_str(), 4711, -1), 0);
  ASSERT_EQ(::chown(file.c_str(), 4711, -1), 0);
  EXPECT_TRUE(watch_->look(1000).empty());
}

// Two nodes, n1 with rank 0 and n2 with rank 1, each with its collector.
class StackRequestTest : public CollectorTest {
 protected:
  void SetUp() override {
    CollectorTest::SetUp();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string node = "n" + std::to_string(rank + 1);
      options_.place = place_of(shared_, run_dir_, node, ::geteuid());
      options_.node = node;
      places_.push_back(options_.place);
      ranks_.push_back(start_rank(rank, [this](Publisher board) {
        write_own_stack_when_asked(options_.place.memory);
        board.begin_attempt(1);
      }));
      start();
    }
    for (const char* file : {"n1.json", "n2.json"})
      EXPECT_TRUE(becomes_true([&] { return fs::exists(reports_of(run_dir_) / file); }));
  }
  void TearDown() override {
    for (const pid_t rank : ranks_) end_rank(rank);
    for (const Place& place : places_) EXPECT_TRUE(becomes_true([&] { return !fs::exists(place.memory); }));
    CollectorTest::TearDown();
  }
  std::vector<AskedRank> both() const { return {{0, ranks_[0], "n1"}, {1, ranks_[1], "n2"}}; }
  std::vector<std::string> requests() const { return names_in(requests_of(run_dir_)); }

  std::vector<Place> places_;
  std::vector<pid_t> ranks_;
};

TEST_F(StackRequestTest, EveryNodeAnswersForItsOwnRanksAlsoIfTheyAreStoppedAndNothingIsLeft) {
  ::kill(ranks_[1], SIGSTOP);
  {
    const StackQuestion question(run_dir_, both());
    const auto answers = question.wait(120);
    ASSERT_EQ(answers.size(), 2u);
    for (int rank = 0; rank < 2; ++rank) {
      const StackAnswer& answer = answers.at("n" + std::to_string(rank + 1));
      EXPECT_TRUE(answer.is_whole);
      ASSERT_EQ(answer.stacks.size(), 1u);
      EXPECT_EQ(answer.stacks[0].rank, rank);
      EXPECT_EQ(answer.stacks[0].process, ranks_[static_cast<size_t>(rank)]);
      if (answer.stacks[0].how != "none") {
        EXPECT_SAYS(answer.stacks[0].text, "pause");
      }
    }
    EXPECT_NE(answers.at("n1").stacks[0].how, "none") << answers.at("n1").stacks[0].text;
    EXPECT_EQ(state_of_process(ranks_[1], start_of_process(ranks_[1])), ProcessState::kStopped) << "it stays stopped";
  }
  EXPECT_TRUE(requests().empty());
}

TEST_F(StackRequestTest, AProcessThatIsNotTheRanksIsNotAnsweredFor) {
  const StackQuestion question(run_dir_, {{0, ranks_[0] + 1, "n1"}, {1, ranks_[0], "n1"}, {1, ranks_[1], "n2"}});
  const auto answers = question.wait(120);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers.at("n1").is_whole && answers.at("n1").stacks.empty()) << "these are of another run or attempt";
  EXPECT_EQ(answers.at("n2").stacks.size(), 1u);
}

TEST_F(StackRequestTest, SeveralWhoAskAtOnceAllGetTheStackOfAStoppedRank) {
  const std::vector<AskedRank> asked{both()[0]};
  ::kill(ranks_[0], SIGSTOP);
  const StackQuestion first(run_dir_, asked), second(run_dir_, asked), third(run_dir_, asked);
  std::string how;
  for (const StackQuestion* each : {&first, &second, &third}) {
    const auto answers = each->wait(120);
    ASSERT_EQ(answers.size(), 1u);
    ASSERT_EQ(answers.at("n1").stacks.size(), 1u);
    if (how.empty()) how = answers.at("n1").stacks[0].how;  // "none" if this build has no reader
    EXPECT_EQ(answers.at("n1").stacks[0].how, how) << answers.at("n1").stacks[0].text;
  }
}

TEST_F(StackRequestTest, ANodeThatDoesNotAnswerIsNamedWithTheReasonsAndTheOthersAreShown) {
  const pid_t collector = read_collector(places_[1]);
  ::kill(collector, SIGSTOP);
  NodeAnswers answers{{}, 2.5, ""};
  {
    const StackQuestion question(run_dir_, both());
    EXPECT_TRUE(becomes_true([&] { return fs::exists(question.folder() / answer_file("n1")); }));
    answers.by_node = question.wait(0.2);
  }
  RunStatus status;
  for (const AskedRank& each : both()) {
    SeenRank seen{{}, each.node, unix_time_s() - 34};
    seen.rank.rank = each.rank;
    seen.rank.process = each.process;
    seen.rank.state = "running";
    status.ranks.push_back(seen);
  }
  const ShownStacks shown = shown_stacks(status, {0, 1}, {}, answers);
  EXPECT_EQ(shown.unanswered, std::vector<std::string>{"n2"});
  ASSERT_EQ(shown.ranks.size(), 2u);
  EXPECT_TRUE(shown.ranks[0].stack);
  EXPECT_SAYS(stacks_text(shown),
              "no stack: n2 has not answered within 2 s: its collector has gone with the job, is "
              "stopped, or does not see the run's folder; its last report is 34 s old");
  EXPECT_SAYS(stacks_text(shown), "no answer from: n2");
  ::kill(collector, SIGCONT);
  EXPECT_EQ(StackQuestion(run_dir_, {both()[1]}).wait(120).size(), 1u) << "it looks again";
  EXPECT_TRUE(requests().empty()) << "what answers too late leaves nothing";
}

// The side of the one who asks, without collectors.
class StackQuestionTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    fs::create_directories(requests_of(folder_));
  }
  std::vector<std::string> requests() const { return names_in(requests_of(folder_)); }
  const std::vector<AskedRank> asked_{{0, 10, "n1"}};
};

TEST_F(StackQuestionTest, WhatAnAskerLeftThatWasKilledIsRemovedByTheNextAfterMinutes) {
  fs::create_directories(requests_of(folder_) / "old");
  fs::create_directories(requests_of(folder_) / "young");
  const utimbuf long_ago{::time(nullptr) - 301, ::time(nullptr) - 301};
  ASSERT_EQ(::utime((requests_of(folder_) / "old").c_str(), &long_ago), 0);
  { const StackQuestion question(folder_, asked_); }
  EXPECT_EQ(requests(), std::vector<std::string>{"young"});
}

TEST_F(StackQuestionTest, WhatRootAsksBelongsToTheUserOfTheRunAndAnotherUserMayNotAsk) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ASSERT_EQ(::seteuid(4711), 0);
  const std::string refused = message_of<Error>([&] { StackQuestion(folder_, asked_); });
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_SAYS(refused, "only the user whose run it is (number 0) may ask");
  EXPECT_TRUE(requests().empty());
  ASSERT_EQ(::chown(reports_of(folder_).c_str(), 4711, -1), 0);
  const StackQuestion question(folder_, asked_);
  for (const fs::path& path : {question.folder(), question.folder() / kRequestFile}) {
    struct stat found {};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_uid, 4711u) << path;
  }
}

TEST_F(StackQuestionTest, WhyNodesWereNotAskedIsShown) {
  EXPECT_SAYS(message_of<IoError>([&] { StackQuestion(folder_ / "other", asked_); }), "cannot look at");
  const NodeAnswers answers{{}, 3, "only the user whose run it is (number 17) may ask"};
  RunStatus status;
  SeenRank seen{{}, "n2", 0};
  seen.rank.state = "running";
  status.ranks.push_back(seen);
  EXPECT_SAYS(stacks_text(shown_stacks(status, {0}, {}, answers)),
              "no stack: n2 was not asked: only the user whose run it is (number 17) may ask");
}

}  // namespace
}  // namespace athanor::board
