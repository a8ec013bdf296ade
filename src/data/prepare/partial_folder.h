#pragma once
// Where data lies while it is prepared: <out>.partial beside the folder that it becomes. It outlives a killed run, so
// that the next one goes on with it, and belongs to one process at a time.

#include <filesystem>

namespace athanor {

/// <out>.partial/data is what becomes `out`; all else in it is for going on.
class PartialFolder {
 public:
  /// Makes or finds the folder and locks it (flock: it ends with the process, whatever ends that).
  /// @throws ConfigError naming the process that has it, or if it holds something that is not ours; IoError.
  explicit PartialFolder(const std::filesystem::path& out);
  /// Removes the folder, unless it is to be kept.
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path data() const { return path_ / "data"; }
  std::filesystem::path journal() const { return path_ / "journal"; }

  /// Whether the folder stays when this object goes.
  void keep(bool kept = true) { kept_ = kept; }
  /// Empties it: the next run starts over.
  void clear();
  /// It has served. @throws IoError
  void remove();

  /// `out` as a name that ".partial" can follow, its link followed, so that both lie on one file system.
  static std::filesystem::path resolve(const std::filesystem::path& out);

 private:
  bool try_lock();
  void write_owner() const;

  std::filesystem::path path_;
  int lock_fd_ = -1;
  bool kept_ = false;
};

}  // namespace athanor
