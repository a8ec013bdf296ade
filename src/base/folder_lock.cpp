#include "base/folder_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;

constexpr const char* kLockName = "lock";
constexpr int kAttempts = 100;  // at a file that others remove at the same time

// Reads fields of /proc/PID/stat after the name, which may contain blanks and brackets: the state is the first, the
// start time the 20th.
std::optional<int64_t> start_of(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) {
    if (!(fields >> field)) return std::nullopt;
    if (i == 0 && (field == "Z" || field == "X"))
      return std::nullopt;  // the process is dead, though its parent has
                            // not waited for it yet
  }
  return std::strtoll(field.c_str(), nullptr, 10);
}

std::string first_line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the value of a line "key value".
std::string value_of(const std::string& content, const std::string& key) {
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + " ")) return line.substr(key.size() + 1);
  return "";
}

ProcessIdentity holder_in(const std::string& content) {
  const auto number = [&](const char* key) { return std::strtoll(value_of(content, key).c_str(), nullptr, 10); };
  return {value_of(content, "host"), value_of(content, "boot_id"), value_of(content, "pid_namespace"), number("pid"),
          number("started")};
}

// Opens the file anew each time, so that a network file system asks its server. Returns nothing if there is no such
// file.
std::optional<std::string> content_of(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const IoError& error) {
    if (error.error_number() == ENOENT || error.error_number() == ESTALE) return std::nullopt;
    throw;
  }
}

// Returns 0, or the error number.
int try_lock(int fd) {
  if (fault_errno("lock.take")) return ENOLCK;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

bool refuses_locks(int error_number) {
  return error_number == ENOLCK || error_number == ENOSYS || error_number == EOPNOTSUPP || error_number == EINVAL;
}

// The previous holder of the lock may have removed the file that we have locked.
bool is_file_at(int fd, const fs::path& path) {
  struct stat ours {
  }, there{};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

// Writes in one call. The text has the same length each time, so no reader finds less than all of it.
void put(int fd, const std::string& text, const fs::path& path) {
  const auto size = static_cast<off_t>(text.size());
  if (::pwrite(fd, text.data(), text.size(), 0) != size || ::ftruncate(fd, size) != 0)
    fail_errno("cannot write", path.string());
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  std::error_code ignored;
  const int64_t pid = ::getpid();
  return {host_name(), first_line_of("/proc/sys/kernel/random/boot_id"),
          fs::read_symlink("/proc/self/ns/pid", ignored).string(), pid, start_of(pid).value_or(0)};
}

bool ProcessIdentity::is_of_this_machine() const {
  const ProcessIdentity here = own();
  return pid > 0 && host == here.host && boot_id == here.boot_id && pid_namespace == here.pid_namespace;
}

bool ProcessIdentity::is_gone() const { return start_of(pid) != std::optional(started); }

FolderLock::FolderLock(fs::path folder, FolderLockOptions options)
    : folder_(std::move(folder)), path_(folder_ / kLockName), options_(options), own_(ProcessIdentity::own()) {
  try {
    take();
  } catch (...) {
    if (fd_ >= 0) {
      if (made_lock_ && is_file_at(fd_, path_)) ::unlink(path_.c_str());
      ::close(fd_);
    }
    remove_what_was_made();
    throw;
  }
}

FolderLock::~FolderLock() {
  if (renewing_.joinable()) {
    renewing_.request_stop();
    wake_.notify_all();
    renewing_.join();
  }
  // We remove the file while the lock is still ours: a process that opened it in the meantime finds another file, or
  // none, under its name.
  if (is_file_at(fd_, path_)) ::unlink(path_.c_str());
  ::close(fd_);
  remove_what_was_made();
}

void FolderLock::make_folder() {
  std::vector<fs::path> missing;
  for (fs::path at = fs::absolute(folder_).lexically_normal(); !at.empty() && !fs::exists(at); at = at.parent_path()) {
    if (at.has_filename()) missing.insert(missing.begin(), at);
  }
  for (const auto& each : missing) {
    if (fs::is_symlink(each))
      fail<ConfigError>("{} is a link to {}, which does not exist: make that folder, or remove the link", each.string(),
                        fs::read_symlink(each).string());
  }
  create_folders(folder_);
  if (made_.empty()) made_ = std::move(missing);
}

void FolderLock::remove_what_was_made() {
  std::error_code ignored;  // a folder that contains something by now stays
  for (auto each = made_.rbegin(); each != made_.rend(); ++each) fs::remove(*each, ignored);
}

void FolderLock::take() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    make_folder();
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const bool is_new = fd_ >= 0;
    made_lock_ = is_new;
    if (!is_new && errno == EEXIST) fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) {
      if (errno == ENOENT && fs::is_symlink(path_))
        fail<ConfigError>("{} is a link to nothing: remove it", path_.string());
      if (errno == ENOENT) continue;  // the file was removed in between
      fail_errno("cannot open", path_.string());
    }
    const int error_number = try_lock(fd_);
    if (refuses_locks(error_number)) return take_lease(is_new);
    if (error_number != 0 && error_number != EAGAIN && error_number != EACCES) {
      errno = error_number;
      fail_errno("cannot lock", path_.string());
    }
    if (error_number != 0) {
      for (int i = 0; i < 10 && content_of(path_).value_or("").empty(); ++i) std::this_thread::sleep_for(50ms);
      if (const auto content = content_of(path_)) refuse(*content);
    } else if (is_file_at(fd_, path_)) {
      return put(fd_, lease_text(0), path_);
    }
    ::close(std::exchange(fd_, -1));
  }
  throw IoError("cannot lock " + path_.string() + ": others take and leave it all the time", EAGAIN);
}

void FolderLock::take_lease(bool is_new) {
  if (is_new) {
    put(fd_, lease_text(0), path_);
    return begin_renewing();
  }
  const auto seen = content_of(path_);
  if (seen && !watch(*seen)) refuse(*seen);
  take_over();
  begin_renewing();
}

bool FolderLock::watch(const std::string& seen) const {
  const ProcessIdentity holder = holder_in(seen);
  if (holder.is_of_this_machine()) return holder.is_gone();
  const int64_t told_ms = std::strtoll(value_of(seen, "interval_ms").c_str(), nullptr, 10);
  const auto interval = told_ms > 0 ? std::min(std::chrono::milliseconds(told_ms), 60000ms) : options_.interval;
  log::info("according to {}, process {} on {} holds it, and the file system has no locks: watching it for {:.3g} s",
            path_.string(), holder.pid, holder.host.empty() ? "another machine" : holder.host,
            static_cast<double>(options_.patience * interval.count()) / 1000);
  for (int i = 0; i < 4 * options_.patience; ++i) {
    std::this_thread::sleep_for(interval / 4);
    const auto now = content_of(path_);
    if (!now) return true;  // the lease was given back
    if (*now != seen) refuse(*now);
  }
  return true;
}

// Others may have found the lease stale as well. The last process that writes its name has the lock, and a process
// believes its own name only after all others have had the time to write theirs.
void FolderLock::take_over() {
  const fs::path mine = folder_ / fmt::format(".lock.{}.{}.tmp", own_.host, own_.pid);
  ::close(std::exchange(fd_, -1));
  fd_ = ::open(mine.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno("cannot create", mine.string());
  put(fd_, lease_text(0), mine);
  rename_path(mine, path_);
  std::this_thread::sleep_for(options_.interval);
  const auto now = content_of(path_);
  if (!now || holder_in(*now) != own_) refuse(now.value_or(""));
}

void FolderLock::begin_renewing() {
  renewing_ = std::jthread([this](const std::stop_token& stop) { renew(stop); });
}

void FolderLock::renew(const std::stop_token& stop) {
  for (int64_t beat = 1; !stop.stop_requested(); ++beat) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, options_.interval, [] { return false; });
    }
    if (stop.stop_requested()) return;
    try {
      const auto now = content_of(path_);
      if (now && holder_in(*now) != own_) {
        const std::lock_guard lock(mutex_);
        taken_over_by_ = *now;
        return;
      }
      if (!now) put_back_removed_lease();
      put(fd_, lease_text(beat), path_);
    } catch (const Error&) {
      // The disk may be full or away for a while. Other processes then see a lease that does not change, and we try
      // again.
    }
  }
}

// Another process that begins at the same moment makes the file first; then the next beat reads its lease.
void FolderLock::put_back_removed_lease() {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return;
  ::close(std::exchange(fd_, fd));
  log::warn("{} was removed under this run and is written again; leave it there, it keeps a second run out",
            path_.string());
}

void FolderLock::check_held() {
  if (!is_lease()) {
    if (!is_file_at(fd_, path_)) take_again();
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!taken_over_by_.empty()) fail_taken_over(taken_over_by_, "this process stood still for longer than its lease");
}

// The file was removed by a cleanup, or another run saw no lock and began.
void FolderLock::take_again() {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    const auto now = errno == EEXIST ? content_of(path_) : std::nullopt;
    if (now && holder_in(*now) != own_)
      fail_taken_over(*now, path_.string() + " was removed while this process held it");
    return;  // the disk may be full or away for a while: the next look tries again
  }
  if (try_lock(fd) != 0) {  // the next look sees a process that came in between
    ::close(fd);
    return;
  }
  ::close(std::exchange(fd_, fd));
  log::warn("{} was removed under this run and is held again; leave it there, it keeps a second run out",
            path_.string());
  try {
    put(fd_, lease_text(0), path_);
  } catch (const IoError&) {
    // The lock is held, even if the file has no name in it.
  }
}

void FolderLock::fail_taken_over(const std::string& content, const std::string& since) const {
  const ProcessIdentity holder = holder_in(content);
  throw IoError(fmt::format("process {} on {} has taken over {}, since {}: it writes there now, and this one ends",
                            holder.pid, holder.host, folder_.string(), since),
                EBUSY);
}

std::string FolderLock::lease_text(int64_t beat) const {
  return fmt::format("host {}\npid {}\nstarted {}\nboot_id {}\npid_namespace {}\ninterval_ms {}\nbeat {:018}\n",
                     own_.host, own_.pid, own_.started, own_.boot_id, own_.pid_namespace, options_.interval.count(),
                     beat);
}

void FolderLock::refuse(const std::string& content) const {
  const ProcessIdentity holder = holder_in(content);
  const std::string who = holder.pid > 0 ? fmt::format("process {} on {}", holder.pid, holder.host) : "another process";
  fail<ConfigError>("{} is in use: {} holds {}; {}", folder_.string(), who, path_.string(), options_.remedy);
}

}  // namespace athanor
