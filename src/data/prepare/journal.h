#pragma once
// A file of JSON lines that says what a long piece of work has done so far, so that a killed one goes on from there.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/append_file.h"

namespace athanor {

/// Each line has its own checksum: what a kill or a crash of the machine left of the last lines is told from what is
/// whole.
class Journal {
 public:
  /// Called with each whole line and its number. False: the line is to be dropped.
  using Visit = std::function<bool(const nlohmann::json&)>;

  /// Visits the lines up to the first that is torn or damaged. Returns whether all there was is whole and was kept.
  /// A file that is not there has no lines. Memory: one line.
  static bool read(const std::filesystem::path& path, const Visit& visit);

  /// Rewrites `path` with nothing but the lines that `keep` keeps.
  static void rewrite(const std::filesystem::path& path, const Visit& keep);

  /// Opens or creates `path`, whose lines must be whole, to append to it. @throws IoError
  explicit Journal(const std::filesystem::path& path) : file_(path) {}

  /// Hands a line to the kernel, so that it outlives this process. @throws IoError
  void append(const nlohmann::json& line);
  /// Waits until the disk has all lines. @throws IoError
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace athanor
