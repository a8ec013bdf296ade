#pragma once
// Replaces a folder by a new one so that one of the two always exists.

#include <filesystem>
#include <utility>

namespace athanor::inline checkpoint {

/// Keeps a folder under the name ".<name>.replaced" until its successor exists. If move_now() renamed it, the
/// destructor removes the old folder if `path` exists again, and puts it back if not. If the process is killed in
/// between, the folder stays until clean_leftovers (rotation.h).
class MovedAside {
 public:
  explicit MovedAside(std::filesystem::path path) : path_(std::move(path)) {}
  ~MovedAside();
  MovedAside(const MovedAside&) = delete;
  MovedAside& operator=(const MovedAside&) = delete;

  /// Renames the folder, if it exists. @throws IoError.
  void move_now();

  /// Returns the path that a folder has while it is kept.
  static std::filesystem::path aside_name(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  bool moved_ = false;
};

}  // namespace athanor::inline checkpoint
