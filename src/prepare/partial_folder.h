#pragma once
// The folder in which data is prepared: <out>.partial, next to the folder that it becomes. It survives a killed call of
// prepare, so that the next call can continue, and it belongs to one process at a time.

#include <filesystem>

namespace athanor::inline preparation {

/// <out>.partial/data becomes `out`; everything else in the folder is needed only to continue.
class PartialFolder {
 public:
  /// Creates or finds the folder and locks it (by flock: the lock is released however the process ends). If the file
  /// system cannot lock, it logs a warning instead.
  /// @throws ConfigError naming the process that holds the folder, or if it contains something that prepare did not
  ///         make; IoError.
  explicit PartialFolder(const std::filesystem::path& out);
  /// Removes the folder, unless keep() has set that it remains.
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path data() const { return path_ / "data"; }
  std::filesystem::path journal() const { return path_ / "journal"; }

  /// Sets whether the folder remains when this object is destroyed.
  void keep(bool kept = true) { kept_ = kept; }
  /// Empties the folder except for its lock: preparing starts over.
  void clear();
  /// Removes the folder now. @throws IoError
  void remove();

  /// Returns `out` as a name that ".partial" can be appended to, with a symbolic link resolved, so that both folders
  /// are on one file system.
  static std::filesystem::path resolve(const std::filesystem::path& out);

 private:
  bool try_lock();
  void write_owner() const;

  std::filesystem::path path_;
  int lock_fd_ = -1;
  bool kept_ = false;
};

}  // namespace athanor::inline preparation
