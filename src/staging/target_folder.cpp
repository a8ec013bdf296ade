#include "staging/target_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::staging {
namespace fs = std::filesystem;

namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

FolderLockOptions lock_options() {
  FolderLockOptions options;
  options.remedy =
      "wait until it has ended, or give --to a folder on the disk of each node ({host} in it becomes the name of the "
      "node)";
  return options;
}

}  // namespace

TargetFolder::TargetFolder(const fs::path& path) : path_(path) {
  std::error_code ignored;
  ATHANOR_CHECK(fs::is_directory(nearest_existing(path_), ignored),
                "--to {} is or is in a file; expected a folder, or a path where nothing is", printable(path_.string()));
  struct stat found {};
  const fs::path parts = path_ / kStateFolder;
  if (::lstat(parts.c_str(), &found) == 0 && (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid()))
    fail<ConfigError>("{} is no folder of this user; give another --to, or move it away", printable(parts.string()));
  lock_ = std::make_unique<FolderLock>(parts, lock_options());
  folder_ = std::make_unique<OpenedFile>(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_->fd() < 0) fail_errno("cannot open", printable(path_.string()));
  parts_ = std::make_unique<OpenedFile>(::openat(folder_->fd(), kStateFolder, kFolderFlags));
  if (parts_->fd() < 0) fail_errno("cannot open", printable(parts.string()));
}

TargetFolder::~TargetFolder() {
  lock_.reset();
  ::unlinkat(folder_->fd(), kStateFolder, AT_REMOVEDIR);  // only if nothing is in it
}

std::string TargetFolder::shown(const std::string& path) const { return printable((path_ / path).string()); }

std::shared_ptr<OpenedFile> TargetFolder::open_folder(const std::string& path) const {
  {
    const std::lock_guard lock(mutex_);
    if (latest_ && latest_path_ == path) return latest_;
  }
  int at = ::dup(folder_->fd());
  for (size_t begin = 0; at >= 0 && begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const int next = ::openat(at, path.substr(begin, end - begin).c_str(), kFolderFlags);
    const int reason = errno;
    ::close(at);
    errno = reason;
    at = next;
    begin = end + 1;
  }
  if (at < 0) return nullptr;
  auto folder = std::make_shared<OpenedFile>(at);
  const std::lock_guard lock(mutex_);
  latest_path_ = path;
  latest_ = folder;
  return folder;
}

std::pair<std::shared_ptr<OpenedFile>, std::string> TargetFolder::open_parent(const std::string& path) const {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {open_folder(""), path};
  return {open_folder(path.substr(0, slash)), path.substr(slash + 1)};
}

std::optional<struct stat> TargetFolder::look(const std::string& path) const {
  const auto [parent, name] = open_parent(path);
  struct stat found {};
  if (parent && ::fstatat(parent->fd(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) return found;
  if (errno == ELOOP || errno == ENOTDIR)
    fail<DataError>("{}: a folder on the way is a link or a file; give another --to, or move it away", shown(path));
  if (errno != ENOENT) fail_errno("cannot use", shown(path));
  return {};
}

void TargetFolder::make_folder(const std::string& path) {
  const auto [parent, name] = open_parent(path);
  if (!parent) fail_errno("cannot open the folder of", shown(path));
  if (::mkdirat(parent->fd(), name.c_str(), 0777) == 0) return;
  if (errno != EEXIST) fail_errno("cannot make", shown(path));
  const auto present = look(path);
  if (!present || !S_ISDIR(present->st_mode))
    fail<DataError>("{} is in the way of a folder; give another --to, or move it away", shown(path));
  if ((present->st_mode & 0700) != 0700) set_mode(path, (present->st_mode & 0777) | 0700);
}

void TargetFolder::place(const std::string& part, const std::string& path) {
  auto [parent, name] = open_parent(path);
  if (!parent && errno == ENOENT) {  // archives need not name folders
    for (size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1))
      make_folder(path.substr(0, slash));
    std::tie(parent, name) = open_parent(path);
  }
  if (!parent) fail_errno("cannot open the folder of", shown(path));
  if (::renameat(parts(), part.c_str(), parent->fd(), name.c_str()) == 0) return;
  if (errno == EISDIR)
    fail<DataError>("{} is a folder in the way of a file; give another --to, or move it away", shown(path));
  fail_errno("cannot place", shown(path));
}

void TargetFolder::make_link(const std::string& path, const std::string& target) {
  const std::string part = "link";
  ::unlinkat(parts(), part.c_str(), 0);
  if (::symlinkat(target.c_str(), parts(), part.c_str()) != 0) fail_errno("cannot make", shown(path));
  place(part, path);
}

void TargetFolder::set_mode(const std::string& path, uint32_t mode) {
  const auto [parent, name] = open_parent(path);
  if (!parent || ::fchmodat(parent->fd(), name.c_str(), mode, 0) != 0)
    fail_errno("cannot set the mode of", shown(path));
}

void TargetFolder::set_mtime(const std::string& path, int64_t mtime_ns) {
  const auto [parent, name] = open_parent(path);
  const struct timespec times[2] = {{0, UTIME_OMIT}, timespec_of(mtime_ns)};
  if (!parent || ::utimensat(parent->fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
    fail_errno("cannot set the time of", shown(path));
}

std::shared_ptr<OpenedFile> TargetFolder::open_part(const std::string& part, int flags) const {
  auto file = std::make_shared<OpenedFile>(::openat(parts(), part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0600));
  return file->fd() < 0 ? nullptr : file;
}

void TargetFolder::remove_part(const std::string& part) const { ::unlinkat(parts(), part.c_str(), 0); }

void TargetFolder::sync() const {
  if (::syncfs(folder_->fd()) != 0) fail_errno("cannot sync", printable(path_.string()));
}

}  // namespace athanor::staging
