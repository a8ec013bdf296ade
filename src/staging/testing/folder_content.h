#pragma once
// What is in folders, written and as text.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/files.h"

namespace athanor::staging {

inline void write(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

/// Content that is different at each place of it.
inline std::string some_bytes(size_t count, uint32_t seed) {
  std::string bytes(count, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

/// What is below a folder: for each path its kind, mode, time and content. The state of transfers is left out.
inline std::map<std::string, std::string> what_is_in(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> found;
  for (fs::recursive_directory_iterator at(folder), end; at != end; ++at) {
    const std::string name = at->path().lexically_relative(folder).string();
    if (name.starts_with(".athanor-yeet")) continue;
    struct stat status {};
    EXPECT_EQ(::lstat(at->path().c_str(), &status), 0);
    std::string& text = found[name];
    if (S_ISLNK(status.st_mode)) {
      text = "link to " + fs::read_symlink(at->path()).string();
      continue;
    }
    text = std::to_string(status.st_mode & 07777) + (S_ISDIR(status.st_mode) ? " folder" : " file ");
    if (S_ISREG(status.st_mode))
      text += std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) + " " +
              read_file(at->path());
  }
  return found;
}

}  // namespace athanor::staging
