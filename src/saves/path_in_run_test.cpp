#include "saves/path_in_run.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"

namespace athanor::path_in_run_test {
namespace {

namespace fs = std::filesystem;

class PlaceInRun : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    for (const char* folder : {"run/checkpoints/step-00000004", "disk/step-00000004", "other/models/step-00000004"})
      fs::create_directories(folder_ / folder);
    fs::create_directory_symlink(folder_ / "disk", folder_ / "run/models");
    fs::create_directory_symlink(folder_ / "run", folder_ / "link");
    fs::create_directory_symlink(folder_ / "other/models/step-00000004", folder_ / "disk/step-00000006");
  }
  std::string place(const std::string& path, const std::string& run = "run") const {
    return path_in_run(folder_ / run, folder_ / path);
  }
};

TEST_F(PlaceInRun, IsFoundThroughLinksOfTheRunOfItsFoldersAndOfACheckpoint) {
  for (const char* run : {"run", "link", "run/", "other/../run"}) {
    for (const char* path : {"run/models/step-00000004", "link/models/step-00000004/", "disk/step-00000004"})
      EXPECT_EQ(place(path, run), "models/step-00000004") << run << " " << path;
    for (const char* path : {"run/models/step-00000006", "link/models/step-00000006", "disk/step-00000006/"})
      EXPECT_EQ(place(path, run), "models/step-00000006") << run << " " << path;
    EXPECT_EQ(place("link/checkpoints/../checkpoints/step-00000004", run), "checkpoints/step-00000004");
    EXPECT_EQ(place("run/checkpoints/step-00000099", run), "checkpoints/step-00000099");  // does not exist
  }
}

TEST_F(PlaceInRun, OfTheFolderItselfIsADotAndOfAnotherNothing) {
  for (const char* path : {"run", "link/", "run/checkpoints/.."}) EXPECT_EQ(place(path), ".") << path;
  EXPECT_EQ(place("disk"), "models");
  for (const char* path : {"other/models/step-00000004", "runs", "nowhere", "run/models/../other"})
    EXPECT_EQ(place(path), "") << path;
}

TEST_F(PlaceInRun, WhatWasLeftBehindIsNoStepOfTheRun) {
  for (const char* own : {"models/step-00000004", "checkpoints/step-00000004"}) EXPECT_TRUE(is_own_step(own)) << own;
  for (const char* other : {"models/abandoned-002/step-00000004", "step-00000004", "models", ".", "", "models/step-4"})
    EXPECT_FALSE(is_own_step(other)) << other;
}

}  // namespace
}  // namespace athanor::path_in_run_test
