#include "board/locked_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace athanor::board {
namespace {

// The lock belongs to the open file, which lives as long as a descriptor or a mapping of it does.
bool lock_file(int descriptor, int how) {
  while (::flock(descriptor, how) != 0)
    if (errno != EINTR) return false;
  return true;
}

bool has_name(int descriptor) {
  struct stat found {};
  return ::fstat(descriptor, &found) == 0 && found.st_nlink > 0;
}

}  // namespace

LockedFile LockedFile::make(const std::filesystem::path& path) {
  while (true) {
    LockedFile file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.descriptor_ < 0) fail_errno("cannot make", path.string());
    if (!lock_file(file.descriptor_, LOCK_EX)) fail_errno("cannot lock", path.string());
    if (has_name(file.descriptor_)) return file;
  }
}

LockedFile LockedFile::open(const std::filesystem::path& path) {
  LockedFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file.descriptor_ >= 0 && !(lock_file(file.descriptor_, LOCK_EX) && has_name(file.descriptor_)))
    return LockedFile(-1);
  return file;
}

LockedFile LockedFile::try_make(const std::filesystem::path& path) {
  LockedFile file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), true);
  if (file.descriptor_ < 0) fail_errno("cannot make", path.string());
  if (!lock_file(file.descriptor_, LOCK_EX | LOCK_NB)) return LockedFile(-1);
  return file;
}

LockedFile::~LockedFile() {
  if (descriptor_ < 0) return;
  if (!is_given_away_) ::flock(descriptor_, LOCK_UN);  // a mapping would keep the lock after close
  ::close(descriptor_);
}

}  // namespace athanor::board
