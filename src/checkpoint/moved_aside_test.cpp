#include "checkpoint/moved_aside.h"

#include "base/testing/folder_test.h"

namespace athanor::moved_aside_test {
namespace {

class MovedAsideTest : public FolderTest {
 protected:
  std::filesystem::path path_;
  void SetUp() override {
    FolderTest::SetUp();
    path_ = folder_ / "model";
    make("old");
  }
  void make(std::string_view what) {
    std::filesystem::create_directories(path_);
    write_raw(path_ / "what", what);
  }
  long num_entries() { return std::distance(std::filesystem::directory_iterator(folder_), {}); }
};

TEST_F(MovedAsideTest, AFolderComesBackIfItsSuccessorNeverDid) {
  {
    MovedAside predecessor(path_);
    predecessor.move_now();
    EXPECT_FALSE(std::filesystem::exists(path_));
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

TEST_F(MovedAsideTest, WhatIsNotThereNeedNotMove) {
  { MovedAside unused(path_); }
  EXPECT_EQ(read_file(path_ / "what"), "old");
  MovedAside nothing(folder_ / "nothing");
  nothing.move_now();
  EXPECT_EQ(num_entries(), 1);
}

}  // namespace
}  // namespace athanor::moved_aside_test
