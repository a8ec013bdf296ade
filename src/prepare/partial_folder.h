#pragma once
// The folder in which data is prepared: <out>.partial, next to the folder that it becomes. It survives a killed call of
// prepare, so that the next call can continue, and it belongs to one process at a time. At last it becomes data of
// `out`.

#include <filesystem>
#include <optional>

#include "dataset/manifest.h"
#include "prepare/prepare_job.h"
#include "prepare/prepare_journal.h"

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

// The last step of preparing: the content of the partial folder becomes data of `out`. The data in `out` change at one
// moment, by one rename. A crash before this moment leaves the old data, and the next call continues the work. A crash
// after it leaves the new data, and the next call only removes what is no longer needed.

/// If job.adds(), moves the new files into `out`, next to the present ones, and then replaces the manifest: until then
/// the new files are not part of the data. Otherwise completes the new folder with tokenizer and manifest and exchanges
/// it with `out`. (If the file system cannot exchange two folders, `out` is absent for a moment; finish_committed mends
/// a crash in it.) Then removes an old remainder and the partial folder.
/// @throws IoError; the data in `out` are then the old ones, or, if only the removal failed, the new ones.
void commit_finished(const std::filesystem::path& out, PartialFolder& partial, const DataManifest& manifest,
                     const PrepareJob& job, PrepareJournal& journal);

/// To be called before preparing. If an earlier call put its data in place but was killed before its last removal, does
/// the rest of it.
/// @return the manifest that is then in `out`; none if there was no such call, and the work has to be done or
///         continued.
std::optional<DataManifest> finish_committed(const std::filesystem::path& out, PartialFolder& partial);

}  // namespace athanor::inline preparation
