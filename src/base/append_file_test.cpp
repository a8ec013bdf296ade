#include "base/append_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/testing/file_size_limit.h"

namespace athanor::append_file_test {
namespace {

namespace fs = std::filesystem;

class AppendFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::path(testing::TempDir()) / ("athanor_append_" + std::to_string(::getpid()));
};

TEST_F(AppendFileTest, WhatIsThereStaysAndARecordIsReadableAtOnce) {
  write_file_atomically(folder_ / "a", "old\n");
  AppendFile file(folder_ / "a");
  file.append("new\n");
  EXPECT_EQ(read_file(folder_ / "a"), "old\nnew\n");
}

TEST_F(AppendFileTest, ARecordThatDoesNotFitIsTakenBackAndLaterOnesFollowTheLastWhole) {
  AppendFile file(folder_ / "a");
  file.append("0123456789\n");
  {
    const FileSizeLimit limit(16);
    EXPECT_THROW(file.append("too long for what is left\n"), IoError);
  }
  EXPECT_EQ(read_file(folder_ / "a"), "0123456789\n");
  file.append("fits\n");
  EXPECT_EQ(read_file(folder_ / "a"), "0123456789\nfits\n");
}

TEST_F(AppendFileTest, AFullDiskIsToldAsOne) {
  AppendFile file("/dev/full");
  try {
    file.append("x");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_TRUE(error.disk_full()) << error.what();
    EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace athanor::append_file_test
