// Tests the removal of checkpoints: what is refused, and what a killed process leaves.

#include "checkpoint/removal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/folder_lock.h"
#include "base/hash.h"
#include "base/testing/folder_test.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rotation.h"
#include "checkpoint/step_words.h"
#include "checkpoint/writer.h"

namespace athanor::removal_test {
namespace {

namespace fs = std::filesystem;

class Removal : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    if (in_child_) return;
    for (const int64_t step : {4, 8, 12}) write_step(step);
  }
  void write_step(int64_t step) {
    fs::create_directories(folder_ / "checkpoints");
    const std::vector<float> values{1, 2, 3};
    write_checkpoint(path_of(step), {{"master/a", whole_slice({3}), values.data()}}, {}, {{"step", step}});
  }
  fs::path path_of(int64_t step) const { return folder_ / "checkpoints" / step_folder_name(step); }
  void damage(int64_t step) const {
    const auto file = path_of(step) / "pieces-00000.safetensors";
    damage_byte(file, fs::file_size(file) - 1);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) all.push_back(entry.path().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  std::vector<RemovedCheckpoint> remove(std::vector<int64_t> steps, bool force = false) {
    return remove_checkpoints({.run = folder_, .steps = std::move(steps), .force = force});
  }
  /// Expects that nothing is removed.
  std::string refused(std::vector<int64_t> steps) {
    const auto before = names();
    auto message = refusal<ConfigError>([&] { remove(std::move(steps)); });
    EXPECT_EQ(names(), before);
    return message;
  }
};

TEST_F(Removal, WhatIsNamedIsRemovedAndItsBytesAreCounted) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path_of(4))) bytes += entry.file_size();
  const auto removed = remove({4, 8, 4});
  ASSERT_EQ(removed.size(), 2u);
  EXPECT_EQ(removed[0].path, path_of(4));
  EXPECT_EQ(removed[0].num_bytes, bytes);
  EXPECT_EQ(names().size(), 4u) << "the folder, and step 12 with its two files";
  EXPECT_TRUE(fs::exists(path_of(12)));
}

TEST_F(Removal, TheNewestThatIsWholeIsRefusedAndForceRemovesIt) {
  EXPECT_SAYS(refused({4, 12}), "step-00000012 is the newest checkpoint that is whole");
  damage(12);
  EXPECT_SAYS(refused({8}), "step-00000008 is the newest checkpoint that is whole");
  EXPECT_EQ(remove({12}).size(), 1u) << "a damaged one may go, though it is the newest";
  EXPECT_EQ(remove({4, 8}, true).size(), 2u);
  EXPECT_TRUE(list_checkpoints(folder_ / "checkpoints").empty());
}

TEST_F(Removal, TheNewestIsRefusedIfItIsOfAFormatThatIsNotKnown) {
  std::string text = read_file(path_of(12) / kManifestName);
  text = text.substr(text.find('\n') + 1);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 9");
  Hasher hasher;
  hasher.update(text.data(), text.size());
  write(fs::path("checkpoints") / step_folder_name(12) / kManifestName,
        fmt::format("{}{}{}{}", kManifestHashStart, hasher.hex(), kManifestHashEnd, text));
  EXPECT_SAYS(refused({12}), "step-00000012 is the newest checkpoint that is whole");
  EXPECT_EQ(remove({4}).size(), 1u);
}

TEST_F(Removal, AStepIsNamedByItsNumberItsFolderOrAPath) {
  for (const std::string& text : {std::string("8"), std::string("step-8"), std::string("step-00000008"),
                                  path_of(8).string(), path_of(8).string() + "/"})
    EXPECT_EQ(step_in_run(text, folder_, CheckpointKind::kFull), 8) << text;
  for (const char* text : {"many", "-7", "8.5", "step-", "99999999999999999999999"})
    EXPECT_SAYS(refusal<ConfigError>([&] { step_in_run(text, folder_, CheckpointKind::kFull); }), "is no step");
  EXPECT_SAYS(refusal<ConfigError>([&] { step_in_run(path_of(8), folder_, CheckpointKind::kModel); }), "is not in");
  EXPECT_SAYS(refusal<ConfigError>([&] { step_in_run("elsewhere/step-00000008", folder_, CheckpointKind::kFull); }),
              "is not in");
}

TEST_F(Removal, AStepThatIsNotThereIsRefusedBeforeAnythingIsRemoved) {
  EXPECT_SAYS(refused({4, 5}), "holds nothing of step 5; there are 12, 8, 4");
}

TEST_F(Removal, AFolderThatIsNoRunIsRefusedAndNotMade) {
  EXPECT_SAYS(message_of<ConfigError>([&] { remove_checkpoints({.run = folder_ / "nowhere", .steps = {4}}); }),
              "no such folder");
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
  EXPECT_SAYS(message_of<ConfigError>(
                  [&] { remove_checkpoints({.run = folder_, .steps = {4}, .kind = CheckpointKind::kModel}); }),
              "is not a run folder with models");
}

TEST_F(Removal, ATrainingThatHoldsTheLockIsNotDisturbed) {
  const FolderLock training(folder_);
  EXPECT_SAYS(refused({4}), "wait until it has ended, or end it");
}

TEST_F(Removal, ALinkIsRefused) {
  fs::rename(path_of(4), folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", path_of(4));
  EXPECT_SAYS(refused({4}), "is a link");
}

TEST_F(Removal, ACheckpointThatCannotBeRenamedStaysAndIsNamed) {
  ::setenv("ATHANOR_FAULT", "checkpoint.hide:eio", 1);
  const auto remove_and_tell = [&] {
    try {
      remove({4});
    } catch (const IoError& error) {
      std::fputs(error.what(), stderr);
    }
    std::_Exit(fs::exists(path_of(4)) ? 0 : 1);
  };
  EXPECT_EXIT(remove_and_tell(), testing::ExitedWithCode(0), "cannot rename .*step-00000004: Input/output error");
  ::unsetenv("ATHANOR_FAULT");
}

TEST_F(Removal, AProcessKilledHalfWayLeavesNothingThatLooksLikeACheckpoint) {
  if (!in_child_) ::setenv("ATHANOR_FAULT", "checkpoint.remove:kill", 1);
  EXPECT_EXIT(remove({4}), testing::KilledBySignal(SIGKILL), "");
  ::unsetenv("ATHANOR_FAULT");
  EXPECT_FALSE(fs::exists(path_of(4)));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoints/.step-00000004.tmp"));
  EXPECT_EQ(list_recoverable(folder_ / "checkpoints").size(), 2u);
  EXPECT_EQ(remove({8}).size(), 1u) << "the lock of the killed process does not hold";
  clean_leftovers(folder_ / "checkpoints");
  EXPECT_FALSE(fs::exists(folder_ / "checkpoints/.step-00000004.tmp"));
}

}  // namespace
}  // namespace athanor::removal_test
