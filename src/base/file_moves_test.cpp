
#include "base/file_moves.h"

#include <signal.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "base/testing/folder_test.h"

namespace athanor::file_moves_test {
namespace {

namespace fs = std::filesystem;

using FileMoves = FolderTest;

TEST_F(FileMoves, ATemporaryNameIsHiddenAndInTheSameFolder) {
  EXPECT_EQ(temporary_name("runs/a/step-1"), "runs/a/.step-1.tmp");
  EXPECT_EQ(temporary_name("data"), "./.data.tmp");
}

TEST_F(FileMoves, ARenameReplacesAFileAndAnEmptyFolderAndNoOther) {
  const auto from = write("a", "new"), to = write("b", "old");
  rename_synced(from, to);
  EXPECT_EQ(read_file(to), "new");
  EXPECT_FALSE(fs::exists(from));
  write("folder/a", "new");
  create_folders(folder_ / "empty");
  rename_path(folder_ / "folder", folder_ / "empty");
  write("full/b", "old");
  const auto message = message_of<IoError>([&] { rename_path(folder_ / "empty", folder_ / "full"); });
  EXPECT_EQ(message, "cannot rename " + (folder_ / "empty").string() + " to " + (folder_ / "full").string() +
                         ": Directory not empty");
  EXPECT_EQ(read_file(folder_ / "full" / "b"), "old");
  EXPECT_EQ(read_file(folder_ / "empty" / "a"), "new");
}

TEST_F(FileMoves, AFolderGoesWithAllThatIsInItAndWhatIsNotThereNeedNotGo) {
  write("tree/a/b", "x");
  remove_tree(folder_ / "tree");
  EXPECT_FALSE(fs::exists(folder_ / "tree"));
  remove_tree(folder_ / "tree");
  EXPECT_EQ(try_remove_tree(folder_ / "tree"), "");
}

TEST_F(FileMoves, WhatCannotGoIsNamedWithTheReason) {
  const std::string where = "/proc/self/status";
  const auto message = message_of<IoError>([&] { remove_tree(where); });
  EXPECT_TRUE(message.starts_with("cannot remove " + where + ": ")) << message;
  EXPECT_EQ(try_remove_tree(where), message);
}

TEST_F(FileMoves, ATemporaryFolderIsForItsUserAloneAndGoesWithItsObject) {
  const TemporaryFolder other(folder_ / "t");
  fs::path path;
  {
    const TemporaryFolder own(folder_ / "t");
    path = own.path();
    EXPECT_NE(path, other.path());
    write_raw(own / "file", "x");
    struct stat found {};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, 0700U);
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(other.path()));
  EXPECT_THROW(TemporaryFolder(folder_ / "nowhere" / "t"), IoError);
}

class MovedAsideTest : public FolderTest {
 protected:
  fs::path path_;
  void SetUp() override {
    FolderTest::SetUp();
    path_ = folder_ / "model";
    if (!in_child_) make("old");
  }
  void make(std::string_view what) {
    fs::create_directories(path_);
    write_raw(path_ / "what", what);
  }
  long num_entries() { return std::distance(fs::directory_iterator(folder_), {}); }
};

TEST_F(MovedAsideTest, AFolderComesBackIfItsSuccessorNeverDid) {
  {
    MovedAside predecessor(path_);
    predecessor.move_now();
    EXPECT_FALSE(fs::exists(path_));
  }
  EXPECT_EQ(read_file(path_ / "what"), "old");
  EXPECT_EQ(num_entries(), 1);
}

TEST_F(MovedAsideTest, AFolderGoesOnceItsSuccessorIsThere) {
  {
    MovedAside predecessor(path_);
    predecessor.move_now();
    make("new");
  }
  EXPECT_EQ(read_file(path_ / "what"), "new");
  EXPECT_EQ(num_entries(), 1);
}

TEST_F(MovedAsideTest, AProcessKilledBeforeTheSuccessorIsThereLeavesTheOldFolderWhole) {
  const auto replace_half = [&] {
    MovedAside predecessor(path_, folder_ / "aside");
    predecessor.move_now();
    ::raise(SIGKILL);
  };
  EXPECT_EXIT(replace_half(), testing::KilledBySignal(SIGKILL), "");
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(read_file(folder_ / "aside" / "what"), "old");
  EXPECT_EQ(num_entries(), 1);
}

TEST_F(MovedAsideTest, WhatIsNotThereNeedNotMove) {
  { MovedAside unused(path_); }
  EXPECT_EQ(read_file(path_ / "what"), "old");
  MovedAside nothing(folder_ / "nothing");
  nothing.move_now();
  EXPECT_EQ(num_entries(), 1);
}

}  // namespace
}  // namespace athanor::file_moves_test
