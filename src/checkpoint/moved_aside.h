#pragma once
// Replacing a folder by a new one, so that one of the two is always there.

#include <filesystem>
#include <utility>

namespace athanor {

/// A folder that waits, under the name ".<name>.replaced", for its successor. At the end of its scope it is removed if
/// `path` is there again, and put back if not. (A kill in between leaves it: rotation.h, clean_leftovers.)
class MovedAside {
 public:
  explicit MovedAside(std::filesystem::path path) : path_(std::move(path)) {}
  ~MovedAside();
  MovedAside(const MovedAside&) = delete;
  MovedAside& operator=(const MovedAside&) = delete;

  /// Renames, if there is something to rename. @throws IoError.
  void move_now();

  static std::filesystem::path aside_name(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  bool moved_ = false;
};

}  // namespace athanor
