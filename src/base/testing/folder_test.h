#pragma once
// For tests: a temporary folder for each test, the shared data, and helpers for bytes and messages.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/files.h"

namespace athanor {

/// A test with a temporary folder.
///
/// A death test of style "threadsafe" runs the test again in a fresh process, up to its statement. There, fault points
/// are armed afresh, the folder's path comes through the environment, and code around the statement belongs under `if
/// (!in_child_)`.
class FolderTest : public testing::Test {
 protected:
  static constexpr const char* kVariable = "ATHANOR_TEST_FOLDER";

  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (const char* inherited = std::getenv(kVariable)) {
      folder_ = inherited;
      in_child_ = true;
      return;
    }
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(testing::TempDir()) / ("athanor_test_" + std::to_string(::getpid()) + "_" + test->name());
    std::filesystem::create_directories(folder_);
    ::setenv(kVariable, folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv(kVariable);
    ::unsetenv("ATHANOR_FAULT");
    std::filesystem::remove_all(folder_);
  }

  /// Writes a file below the folder and returns its path.
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, bytes);
    return path;
  }

  std::filesystem::path folder_;
  bool in_child_ = false;
};

/// Returns the message of the `E` that `action` throws; if it throws none, fails the test and returns "".
template <class E, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Returns the message, of one line, of the `E` that `action` throws; if it throws none, the test fails and the result
/// is "".
template <class E, class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void write_raw(const std::filesystem::path& path, std::string_view bytes) { write_file_atomically(path, bytes); }

/// Flips one bit, as a bad disk does.
inline void damage_byte(const std::filesystem::path& path, uint64_t offset) {
  auto bytes = read_file(path);
  bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ 0x10);
  write_file_atomically(path, bytes);
}

/// Returns the folder of shared data, or empty if there is none.
inline std::filesystem::path shared_data() {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  const auto path = source ? std::filesystem::path(source) / "../shared/data" : std::filesystem::path();
  return std::filesystem::is_directory(path) ? path : std::filesystem::path();
}

#define EXPECT_SAYS(message, part) EXPECT_NE(std::string(message).find(part), std::string::npos) << (message)

}  // namespace athanor
