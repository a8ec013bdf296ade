#pragma once
// A file of the node that is locked for as long as the object lives.

#include <filesystem>

namespace athanor::board {

class LockedFile {
 public:
  /// Opens the file, which is made if it is not there, and waits for its lock. If it was removed meanwhile, the next
  /// file of that name is taken. @throws IoError.
  static LockedFile make(const std::filesystem::path& path);
  /// Opens a file that is there, and waits for its lock; descriptor() is −1 if it is gone.
  static LockedFile open(const std::filesystem::path& path);
  /// Opens the file, which is made if it is not there; descriptor() is −1 if another process has the lock. A child that
  /// inherits the descriptor keeps the lock when this object has gone.
  /// @throws IoError.
  static LockedFile try_make(const std::filesystem::path& path);

  ~LockedFile();
  LockedFile(LockedFile&& other) noexcept : descriptor_(other.descriptor_), is_given_away_(other.is_given_away_) {
    other.descriptor_ = -1;
  }
  LockedFile& operator=(LockedFile&&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  explicit LockedFile(int descriptor, bool is_given_away = false)
      : descriptor_(descriptor), is_given_away_(is_given_away) {}
  int descriptor_;
  bool is_given_away_;
};

}  // namespace athanor::board
