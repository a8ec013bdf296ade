#pragma once
// A journal: a file of JSON lines that records the progress of long work, so that the work can continue after a kill.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/append_file.h"

namespace athanor::inline preparation {

/// Each line has a checksum, which tells whole lines from those that a kill or a crash of the machine damaged.
class Journal {
 public:
  /// Is called with each whole line. Returns false if the line is to be dropped.
  using Visit = std::function<bool(const nlohmann::json&)>;

  /// Visits the lines up to the first that is torn or damaged. Returns true if every line is whole and `visit` dropped
  /// none; the file does not change. A file that does not exist has no lines. Memory: one line. @throws IoError
  static bool read(const std::filesystem::path& path, const Visit& visit);

  /// Rewrites `path` with only the lines for which `keep` returns true, up to the first that is torn or damaged. The
  /// file is replaced atomically. @throws IoError
  static void rewrite(const std::filesystem::path& path, const Visit& keep);

  /// Opens or creates `path` to append to it; its lines must be whole. @throws IoError
  explicit Journal(const std::filesystem::path& path) : file_(path) {}

  /// Hands a line to the kernel, so that it outlives this process. @throws IoError
  void append(const nlohmann::json& line);
  /// Waits until the disk has all lines. @throws IoError
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace athanor::inline preparation
