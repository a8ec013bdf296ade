#include "base/block_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace athanor::block_writer_test {
namespace {

constexpr size_t kBlock = BlockWriter::kBlockBytes;

class BlockWriters : public testing::Test {
 protected:
  void SetUp() override { open_file(O_WRONLY | O_CREAT | O_TRUNC); }
  void TearDown() override {
    ::close(fd_);
    std::filesystem::remove(path_);
  }
  void open_file(int flags) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0666);
    ASSERT_GE(fd_, 0);
  }
  bool is_direct() const { return (::fcntl(fd_, F_GETFL) & O_DIRECT) != 0; }

  // Not one period of a block or page: a block at another place is seen.
  static std::string text_of(size_t size) {
    std::string text(size, '\0');
    uint64_t state = size;
    for (char& each : text) {
      state = state * 6364136223846793005 + 1442695040888963407;
      each = static_cast<char>(state >> 56);
    }
    return text;
  }
  static void write(BlockWriter& writer, std::string_view text, size_t step) {
    for (size_t at = 0; at < text.size(); at += step) {
      const auto part = text.substr(at, step);
      writer.write(part.data(), part.size());
    }
    writer.finish();
  }

  std::string path_ = testing::TempDir() + "athanor_blocks_" + std::to_string(::getpid());
  int fd_ = -1;
};

TEST_F(BlockWriters, FilesOfAllSizesHaveTheirBytesHoweverTheyCome) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, kBlock - 1, kBlock, kBlock + 1,
                            2 * kBlock + 4096, 3 * kBlock + 12345}) {
    for (const size_t step : {size_t{4099}, kBlock, size_t{1} << 30}) {
      open_file(O_WRONLY | O_CREAT | O_TRUNC);
      const std::string text = text_of(size);
      BlockWriter writer(fd_, path_);
      write(writer, text, step);
      EXPECT_TRUE(read_file(path_) == text) << size << " bytes in steps of " << step;
    }
  }
}

// Kernels before 6.6 refuse O_DIRECT there, and later ones take it.
TEST_F(BlockWriters, FilesInMemoryHaveTheirBytesWhetherOrNotWritesMayPassByTheCache) {
  std::filesystem::remove(path_);
  path_ = "/dev/shm/athanor_blocks_" + std::to_string(::getpid());
  for (const size_t size : {size_t{1}, size_t{4096}, kBlock + 1, 2 * kBlock + 4096, 3 * kBlock + 12345}) {
    open_file(O_WRONLY | O_CREAT | O_TRUNC);
    const std::string text = text_of(size);
    BlockWriter writer(fd_, path_);
    write(writer, text, 100'000);
    EXPECT_TRUE(read_file(path_) == text) << size << " bytes";
  }
}

TEST_F(BlockWriters, WholePagesPassByTheCacheWhereTheFileSystemAllowsIt) {
  const bool allowed = ::fcntl(fd_, F_SETFL, O_DIRECT) == 0;
  BlockWriter writer(fd_, path_);
  const std::string text = text_of(3 * kBlock);
  writer.write(text.data(), text.size());
  writer.finish();
  EXPECT_EQ(is_direct(), allowed);
  if (!allowed) GTEST_SKIP() << "the folder of tests has no O_DIRECT";
  // mincore tells which pages of the file are in the cache; on shared folders of other kinds this proves nothing.
  open_file(O_RDONLY);
  void* mapped = ::mmap(nullptr, text.size(), PROT_READ, MAP_SHARED, fd_, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::vector<unsigned char> resident(text.size() / 4096);
  ASSERT_EQ(::mincore(mapped, text.size(), resident.data()), 0);
  EXPECT_EQ(std::count_if(resident.begin(), resident.end(), [](auto page) { return (page & 1) != 0; }), 0);
  ::munmap(mapped, text.size());
}

// As on a file system that takes the flag and then refuses each write.
TEST_F(BlockWriters, AWriteThatIsRefusedWithoutTheCacheIsRepeatedWithIt) {
  const std::string text = text_of(2 * kBlock + 5);
  ASSERT_EQ(::pwrite(fd_, "x", 1, 0), 1);
  BlockWriter writer(fd_, path_, /*begin=*/1);
  write(writer, text, 100'000);
  EXPECT_FALSE(is_direct());
  EXPECT_TRUE(read_file(path_) == "x" + text);
}

TEST_F(BlockWriters, AFullDiskIsReportedToTheCallerWithItsPath) {
  std::filesystem::remove(path_);
  const std::string disk = "/dev/full";
  const int full = ::open(disk.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  for (const size_t size : {size_t{10}, 4 * kBlock}) {
    BlockWriter writer(full, disk);
    const std::string text = text_of(size);
    try {
      writer.write(text.data(), text.size());
      writer.finish();
      ADD_FAILURE() << size << " bytes were written to a full disk";
    } catch (const IoError& error) {
      EXPECT_TRUE(error.disk_full());
      EXPECT_NE(std::string(error.what()).find(disk), std::string::npos) << error.what();
    }
  }
  ::close(full);
}

TEST_F(BlockWriters, OneThatIsLeftBeforeItsEndWaitsForItsThread) {
  for (int i = 0; i < 20; ++i) {
    BlockWriter writer(fd_, path_);
    const std::string text = text_of(kBlock + 1);
    writer.write(text.data(), text.size());
  }
}

}  // namespace
}  // namespace athanor::block_writer_test
