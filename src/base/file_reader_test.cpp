#include "base/file_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace athanor::file_reader_test {
namespace {

namespace fs = std::filesystem;

class FileReading : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    file_ = fs::path(testing::TempDir()) / ("athanor_reader_" + std::to_string(::getpid()) + "_" + test->name());
    write_file_atomically(file_, "0123456789");
  }
  void TearDown() override { fs::remove_all(file_); }
  fs::path file_;
};

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const IoError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_F(FileReading, BytesComeFromAnyPlace) {
  const FileReader reader(file_);
  char four[4] = {};
  reader.read_at(3, four, 4);
  EXPECT_EQ(std::string(four, 4), "3456");
  EXPECT_EQ(reader.size(), 10u);
  EXPECT_EQ(reader.read_up_to(8, four, 4), 2u);
}

TEST_F(FileReading, AFileThatIsCutOffWhileItIsOpenIsAnErrorWithItsByte) {
  const FileReader reader(file_);
  fs::resize_file(file_, 5);
  char four[4] = {};
  const auto message = message_of([&] { reader.read_at(3, four, 4); });
  EXPECT_NE(message.find(file_.string() + " at byte 3: it ends at byte 5 now and had 10"), std::string::npos)
      << message;
}

TEST_F(FileReading, WhatIsNoFileIsRefused) {
  message_of([&] { FileReader("/nowhere/at/all"); });
  message_of([&] { FileReader(fs::path(testing::TempDir())); });
}

TEST_F(FileReading, AHashTellsItsProgressAndIsThatOfTheBytes) {
  write_file_atomically(file_, std::string(9 << 20, 'x'));
  int64_t told = 0;
  EXPECT_EQ(hash_file(file_, [&](int64_t bytes) { told += bytes; }), hash_hex(std::string(9 << 20, 'x')));
  EXPECT_EQ(told, 9 << 20);
}

}  // namespace
}  // namespace athanor::file_reader_test
