#include "prepare/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

constexpr const char* kLockName = "lock";

void check(const std::error_code& error, const char* what, const fs::path& path) {
  if (error) throw IoError(fmt::format("{} {}: {}", what, path.string(), error.message()), error.value());
}

// A folder of the same name that a user made must not be lost.
void check_ours(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  ATHANOR_CHECK(fs::is_directory(path, error), "{} is in the way: unfinished data would be written there; move it away",
                path.string());
  ATHANOR_CHECK(
      fs::exists(path / kLockName, error) || fs::is_empty(path, error),
      "{} is in the way: unfinished data would be written there, but it contains something else; move it away",
      path.string());
}

}  // namespace

fs::path PartialFolder::resolve(const fs::path& out) {
  std::error_code ignored;
  fs::path path = out.filename().empty() ? out.parent_path() : out;  // "data/" names the same folder as "data"
  const bool is_odd = path.filename() == "." || path.filename() == ".." || fs::is_symlink(path, ignored);
  return is_odd ? fs::weakly_canonical(path) : path;
}

PartialFolder::PartialFolder(const fs::path& out) : path_(resolve(out)) {
  path_ += ".partial";
  check_ours(path_);
  while (!try_lock()) {
  }
  write_owner();
}

// Returns false if another process removed the folder between our opening the file and locking it.
bool PartialFolder::try_lock() {
  std::error_code error;
  fs::create_directories(path_, error);
  check(error, "cannot create folder", path_);
  const auto file = path_ / kLockName;
  lock_fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_fd_ < 0) fail_errno("cannot open", file.string());
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    ::close(lock_fd_);
    if (error_number == EWOULDBLOCK) {
      fail<ConfigError>("{} is being prepared by another process ({}); wait for it, end it, or name another --out",
                        path_.stem().string(), read_file(file));
    }
    lock_fd_ = -1;
    log::warn("{} cannot be locked here; see to it that no two runs prepare the same folder", file.string());
    return true;
  }
  struct stat locked {
  }, named{};
  if (::fstat(lock_fd_, &locked) == 0 && ::stat(file.c_str(), &named) == 0 && locked.st_ino == named.st_ino)
    return true;
  ::close(lock_fd_);
  return false;
}

void PartialFolder::write_owner() const {
  if (lock_fd_ < 0) return;
  const std::string owner = fmt::format("process {} on {}", ::getpid(), host_name());
  [[maybe_unused]] const bool written =
      ::ftruncate(lock_fd_, 0) == 0 && ::pwrite(lock_fd_, owner.data(), owner.size(), 0) > 0;
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void PartialFolder::clear() {
  for (const auto& entry : fs::directory_iterator(path_)) {
    std::error_code error;
    if (entry.path().filename() != kLockName) fs::remove_all(entry.path(), error);
    check(error, "cannot remove", entry.path());
  }
}

void PartialFolder::remove() {
  clear();
  std::error_code error;
  fs::remove_all(path_, error);
  check(error, "cannot remove", path_);
  kept_ = true;
}

}  // namespace athanor::inline preparation
