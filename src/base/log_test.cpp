#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace athanor::log_test {
namespace {

namespace fs = std::filesystem;

class RankFileTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  fs::path file() const { return folder_ / "node7" / "rank-00012.log"; }
  std::string lines() const { return read_file(file()); }
  // Returns what `say` writes to standard error. It runs in a separate process, since a process has one log.
  std::string said_by(const std::function<void()>& say, bool is_shown = false) const {
    const fs::path terminal = folder_.string() + ".terminal";
    EXPECT_EXIT(
        {
          (void)std::freopen(terminal.c_str(), "w", stderr);
          log::speak_as_rank(12, "node7", is_shown);
          say();
          std::fflush(stderr);
          std::_Exit(0);
        },
        testing::ExitedWithCode(0), "");
    const std::string text = read_file(terminal);
    fs::remove(terminal);
    return text;
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("athanor_rank_file_" + std::to_string(::getpid()));
};

TEST_F(RankFileTest, ARankWithoutAWarningOfItsOwnMakesNoFileAndNoFolder) {
  EXPECT_EQ(said_by([&] {
              log::RankFile rank_file;
              rank_file.open(file(), [] { return 3; });
              log::info("a fact");
              log::warn_on_all("something that every rank finds");
            }),
            "");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(RankFileTest, FromTheFirstWarningOnMessagesAreInTheFileWithTimeAndStepAndNotOnTheTerminal) {
  EXPECT_EQ(said_by([&] {
              log::RankFile rank_file;
              int64_t step = 3;
              rank_file.open(file(), [&] { return step; });
              log::info("before");
              log::warn("late data");
              step = 4;
              log::warn("step 4: late again");
              log::info("after");
            }),
            "");
  const std::string text = lines();
  EXPECT_EQ(text.find("before"), std::string::npos);
  EXPECT_NE(text.find(" W step 3: late data\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" W step 4: late again\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" I step 4: after\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("20"), 0u) << text;  // a time of this century
}

TEST_F(RankFileTest, AWarningFromBeforeTheFolderIsOpenIsKept) {
  said_by([&] {
    log::warn("early");
    if (fs::exists(folder_)) std::_Exit(1);
    log::RankFile rank_file;
    rank_file.open(file(), [] { return 0; });
  });
  EXPECT_NE(lines().find(" W early\n"), std::string::npos) << lines();
}

TEST_F(RankFileTest, AnErrorIsInTheFileAndOnTheTerminal) {
  const std::string terminal = said_by([&] {
    log::RankFile rank_file;
    rank_file.open(file(), [] { return 0; });
    log::error("rank 12 (node7): lost");
  });
  EXPECT_NE(terminal.find(" E rank 12 (node7): lost\n"), std::string::npos) << terminal;
  EXPECT_NE(lines().find(" E rank 12 (node7): lost\n"), std::string::npos);
}

TEST_F(RankFileTest, TheMessagesOfAShownRankNameItOnTheTerminal) {
  const std::string terminal = said_by(
      [] {
        log::info("a fact");
        log::warn_on_all("something that every rank finds");
        log::error("rank 12 (node7): lost");
      },
      /*is_shown=*/true);
  EXPECT_NE(terminal.find(" I rank 12 (node7): a fact\n"), std::string::npos) << terminal;
  EXPECT_NE(terminal.find(" I rank 12 (node7): something that every rank finds\n"), std::string::npos) << terminal;
  EXPECT_NE(terminal.find(" E rank 12 (node7): lost\n"), std::string::npos) << terminal;
}

TEST_F(RankFileTest, WhatCannotBeWrittenIsShownOnceAndIsWrittenAgainWhenItCan) {
  write_file_atomically(folder_, "a file where the run folder should be");
  const std::string terminal = said_by([&] {
    log::RankFile rank_file;
    rank_file.open(file(), [] { return 5; });
    log::warn("first");
    log::warn("second");
    fs::remove(folder_);
    log::warn("third");
  });
  EXPECT_NE(terminal.find("rank-00012.log: "), std::string::npos) << terminal;
  EXPECT_NE(terminal.find("W step 5: first\n"), std::string::npos) << terminal;
  EXPECT_EQ(terminal.find("second"), std::string::npos) << terminal;
  EXPECT_NE(lines().find("third"), std::string::npos);
}

TEST_F(RankFileTest, AFullDiskLosesLinesAndNothingElse) {
  fs::create_directories(file().parent_path());
  fs::create_symlink("/dev/full", file());
  const std::string terminal = said_by([&] {
    log::RankFile rank_file;
    rank_file.open(file(), [] { return 5; });
    log::warn("first");
    log::warn("second");
  });
  EXPECT_NE(terminal.find("No space left on device"), std::string::npos) << terminal;
}

TEST(ShownRank, IsOneOfTheJobOrRefusedWithThoseThereAre) {
  ::unsetenv("ATHANOR_LOG_RANK");
  EXPECT_EQ(log::shown_rank(4), std::nullopt);
  ::setenv("ATHANOR_LOG_RANK", "3", 1);
  EXPECT_EQ(log::shown_rank(4), 3);
  for (const char* wrong : {"4", "-1", "3,1", "all", "", "3 "}) {
    ::setenv("ATHANOR_LOG_RANK", wrong, 1);
    try {
      log::shown_rank(4);
      ADD_FAILURE() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("0 to 3"), std::string::npos) << error.what();
    }
  }
  ::unsetenv("ATHANOR_LOG_RANK");
}

}  // namespace
}  // namespace athanor::log_test
