#include "base/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/hash.h"

namespace athanor::files_test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::path(testing::TempDir()) / ("athanor_files_" + std::to_string(::getpid()));
};

TEST_F(Files, AnAtomicFileIsAbsentUntilItIsCommitted) {
  {
    AtomicFile file(folder_ / "a");
    file.write("half");
    EXPECT_FALSE(fs::exists(folder_ / "a"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  AtomicFile file(folder_ / "a");
  file.write("0123456789");
  file.write_at(2, "ab", 2);
  file.write("end");
  file.commit();
  EXPECT_EQ(read_file(folder_ / "a"), "01ab456789end");
}

TEST_F(Files, AnAtomicFolderIsAbsentUntilItIsCommitted) {
  {
    AtomicFolder out(folder_ / "data");
    write_file_atomically(out.staging() / "x", "1");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  AtomicFolder out(folder_ / "data/");
  write_file_atomically(out.staging() / "x", "1");
  out.commit();
  EXPECT_EQ(read_file(folder_ / "data" / "x"), "1");
}

TEST_F(Files, AMissingFileIsNamedWithTheReason) {
  try {
    read_file(folder_ / "missing");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("missing: No such file"), std::string::npos) << error.what();
    EXPECT_FALSE(error.disk_full());
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST_F(Files, WhatTheUserCanMendExitsWithTwoAndAFailingDiskWithOne) {
  EXPECT_EQ(IoError("full", ENOSPC).exit_code(), 2);
  EXPECT_EQ(IoError("read-only", EROFS).exit_code(), 2);
  EXPECT_EQ(IoError("broken", EIO).exit_code(), 74);
}

TEST_F(Files, MappedBytesEqualReadBytesAndTheirHash) {
  const std::string text(100000, 'x');
  write_file_atomically(folder_ / "t", text);
  const MappedFile mapped(folder_ / "t");
  EXPECT_EQ(mapped.text(), text);
  EXPECT_EQ(hash_file(folder_ / "t"), hash_hex(text));
  write_file_atomically(folder_ / "empty", "");
  EXPECT_EQ(MappedFile(folder_ / "empty").size(), 0u);
}

// Returns the resident bytes of this process that belong to files, on a disk or in a tmpfs.
size_t resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  size_t kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:") || line.starts_with("RssShmem:"))
      kilobytes += std::stoul(line.substr(line.find(':') + 1));
  }
  return kilobytes << 10;
}

TEST_F(Files, WhatIsReleasedLeavesTheProcessAndStaysReadable) {
  constexpr size_t kSize = 32 << 20;
  std::string text(kSize, 'a');
  text[kSize / 2] = 'b';
  write_file_atomically(folder_ / "large", text);
  const MappedFile mapped(folder_ / "large");
  const size_t before = resident_file_bytes();
  EXPECT_EQ(mapped.text(), text);
  EXPECT_GT(resident_file_bytes(), before + kSize / 2);
  for (size_t at = 0; at < kSize; at += 1000) mapped.release(mapped.data() + at, std::min<size_t>(1000, kSize - at));
  EXPECT_LT(resident_file_bytes(), before + kSize / 8);
  EXPECT_EQ(mapped.text(), text);
}

TEST_F(Files, AFolderOfMemoryIsToldFromOthersAlsoBeforeItExists) {
  EXPECT_TRUE(is_in_memory("/dev/shm"));
  EXPECT_TRUE(is_in_memory("/dev/shm/athanor-nowhere/below"));
  EXPECT_FALSE(is_in_memory("/proc"));
  EXPECT_FALSE(is_in_memory("/proc/nowhere"));
}

}  // namespace
}  // namespace athanor::files_test
