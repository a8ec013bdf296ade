#include "run/matmul_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "record/run_folder.h"

namespace athanor::matmul_choice_test {
namespace {

using kernels::MatmulPath;
namespace fs = std::filesystem;

// A new run folder, and an environment that does not ask for a path.
class MatmulChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("ATHANOR_MATMUL")) asked_ = value;
    ::unsetenv("ATHANOR_MATMUL");
    folder_ = fs::temp_directory_path() / ("athanor-matmul-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    config_.train.run_dir = folder_.string();
    config_.model.hidden_size = 64;
    config_.model.num_attention_heads = 2;
    config_.model.intermediate_size = 64;
    config_.data.seq_len = 32;
  }
  void TearDown() override {
    if (asked_) ::setenv("ATHANOR_MATMUL", asked_->c_str(), 1);
    fs::remove_all(folder_);
  }
  void record(const std::string& text) { write_file_atomically(RunFolder{folder_}.matmul(), text); }
  static ResumePoint goes_on() {
    ResumePoint begin;
    begin.from = ResumePoint::From::kNewest;
    return begin;
  }

  fs::path folder_;
  RunConfig config_;
  std::optional<std::string> asked_;
};

TEST_F(MatmulChoiceTest, AFreshRunMeasuresAndItsRecordIsReadAgain) {
  const MatmulChoice choice = choose_matmul_paths(config_, {});
  EXPECT_EQ(paths_of(choice.record, "record"), choice.paths);
  EXPECT_NE(choice.record.find("measured"), std::string::npos);
  EXPECT_NE(choice.line.find("GFLOP/s"), std::string::npos) << choice.line;
}

TEST_F(MatmulChoiceTest, AResumeKeepsWhatItsFolderHolds) {
  record(text_of(ops::all_on(MatmulPath::kLibrary)));
  const MatmulChoice choice = choose_matmul_paths(config_, goes_on());
  EXPECT_EQ(choice.paths, ops::all_on(MatmulPath::kLibrary));
  EXPECT_EQ(choice.record, "");
}

TEST_F(MatmulChoiceTest, AnOlderRunWithoutARecordGoesOnWithTheDefault) {
  EXPECT_EQ(choose_matmul_paths(config_, goes_on()).paths, ops::default_matmul_paths());
}

TEST_F(MatmulChoiceTest, WhatIsAskedForWinsAndIsRecorded) {
  record(text_of(ops::default_matmul_paths()));
  ::setenv("ATHANOR_MATMUL", "library", 1);
  const MatmulChoice choice = choose_matmul_paths(config_, goes_on());
  ::unsetenv("ATHANOR_MATMUL");
  EXPECT_EQ(choice.paths, ops::all_on(MatmulPath::kLibrary));
  EXPECT_EQ(paths_of(choice.record, "record"), choice.paths);
}

TEST_F(MatmulChoiceTest, APathThatThisCpuLacksIsRefusedByNameWithTheRemedy) {
  if (kernels::has_path(MatmulPath::kAvx512Bf16)) GTEST_SKIP() << "this CPU has every path";
  record(text_of(ops::all_on(MatmulPath::kAvx512Bf16)));
  try {
    choose_matmul_paths(config_, goes_on());
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("avx512_bf16"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("ATHANOR_MATMUL"), std::string::npos);
  }
}

// A later rank, to which the first one sends: there was no error, its choice, and all ranks have the path.
TEST_F(MatmulChoiceTest, EveryRankTakesWhatTheFirstHasChosenWhateverItWouldChooseItself) {
  const ops::MatmulPaths before = ops::matmul_paths();
  std::vector<std::string> words = {"", text_of(ops::all_on(MatmulPath::kLibrary)), ""};
  Team team;
  team.index = 1, team.size = 2;
  team.gather = [](const std::string&) { return std::vector<std::string>(); };
  team.broadcast = [&, said = size_t{0}](const std::string&) mutable { return words.at(said++); };
  ::setenv("ATHANOR_MATMUL", "default", 1);
  const MatmulChoice choice = settle_matmul_paths(config_, {}, team);
  ::unsetenv("ATHANOR_MATMUL");
  EXPECT_EQ(choice.paths, ops::all_on(MatmulPath::kLibrary));
  EXPECT_EQ(ops::matmul_paths(), choice.paths);
  EXPECT_EQ(choice.record, "") << "the first rank writes it";
  ops::set_matmul_paths(before);
}

TEST_F(MatmulChoiceTest, ARecordThatCannotBeReadIsRefusedByItsNameUnlessAPathIsAskedFor) {
  record("{\"bfloat16\": 3}");
  EXPECT_THROW(choose_matmul_paths(config_, goes_on()), ConfigError);
  ::setenv("ATHANOR_MATMUL", "library", 1);
  EXPECT_EQ(choose_matmul_paths(config_, goes_on()).paths, ops::all_on(MatmulPath::kLibrary));
  ::unsetenv("ATHANOR_MATMUL");
}

TEST_F(MatmulChoiceTest, ARecordOfAPathThatItsTypeLacksIsRefused) {
  std::string text = text_of(ops::all_on(MatmulPath::kAvx512));
  text.replace(text.find("avx512"), 6, "avx512_bf16");  // float32 comes first
  EXPECT_THROW(paths_of(text, "record"), ConfigError);
}

TEST_F(MatmulChoiceTest, ARankThatWasStartedWithAnotherPathIsRefused) {
  const ops::MatmulPaths before = ops::matmul_paths();
  Team team;
  team.index = 1, team.size = 2;
  std::vector<std::string> told;
  team.gather = [&](const std::string& own) { return told.push_back(own), std::vector<std::string>(); };
  std::vector<std::string> words = {"", text_of(ops::default_matmul_paths()), "", ""};
  team.broadcast = [&, said = size_t{0}](const std::string&) mutable { return words.at(said++); };
  if (ops::all_on(MatmulPath::kLibrary) == ops::default_matmul_paths()) GTEST_SKIP() << "this CPU has no other path";
  ::setenv("ATHANOR_MATMUL", "library", 1);
  settle_matmul_paths(config_, {}, team);
  ::unsetenv("ATHANOR_MATMUL");
  ASSERT_FALSE(told.empty());
  EXPECT_NE(told.back().find("ATHANOR_MATMUL"), std::string::npos) << told.back();
  ops::set_matmul_paths(before);
}

}  // namespace
}  // namespace athanor::matmul_choice_test
