#pragma once
// The folder that a node fills, and in it the folder of unfinished parts. Every path is followed part by part from the
// target folder on, and no link on the way is followed: in a folder that others can write to, such as /tmp, a link
// could lead anywhere.

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/folder_lock.h"
#include "staging/file_facts.h"
#include "staging/manifest.h"

namespace athanor::staging {

/// Its functions throw IoError that names the path, and DataError if something other than a folder, a file or a link is
/// in the way. Any thread may call them.
class TargetFolder {
 public:
  /// Makes the folder if it is missing, and takes its lock. @throws ConfigError if another process fills it: also one
  /// of another node, if the folder is not on the disk of this one.
  explicit TargetFolder(const std::filesystem::path& path);
  ~TargetFolder();

  const std::filesystem::path& path() const { return path_; }
  int parts() const { return parts_->fd(); }  ///< descriptor of the folder of unfinished parts

  /// Returns what is at a path; nothing if nothing is.
  std::optional<struct stat> look(const std::string& path) const;
  /// Makes a folder that others in it can be made in; none if it is there.
  void make_folder(const std::string& path);
  /// Gives a part the name of a file, in place of a file or a link that has it; its folder is made if it is missing.
  void place(const std::string& part, const std::string& path);
  void make_link(const std::string& path, const std::string& target);
  void set_mode(const std::string& path, uint32_t mode);
  void set_mtime(const std::string& path, int64_t mtime_ns);

  /// Opens a part. @param flags  of open(2).
  std::shared_ptr<OpenedFile> open_part(const std::string& part, int flags) const;
  void remove_part(const std::string& part) const;
  std::string shown(const std::string& path) const;  ///< for messages
  /// Waits until all that was written is on the disk.
  void sync() const;

 private:
  std::shared_ptr<OpenedFile> open_folder(const std::string& path) const;
  std::pair<std::shared_ptr<OpenedFile>, std::string> open_parent(const std::string& path) const;

  std::filesystem::path path_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<OpenedFile> folder_, parts_;
  mutable std::mutex mutex_;
  mutable std::string latest_path_;  // which folder was opened last: neighbours follow
  mutable std::shared_ptr<OpenedFile> latest_;
};

}  // namespace athanor::staging
