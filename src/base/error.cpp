#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace athanor {

bool IoError::disk_full() const { return error_number_ == ENOSPC || error_number_ == EDQUOT; }

bool IoError::is_for_the_user(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOSPC:
    case EDQUOT: return true;
    default: return false;
  }
}

void fail_errno(const std::string& what, const std::string& path) {
  const int error_number = errno;
  std::string message = what + " " + path + ": " + std::strerror(error_number);
  if (error_number == ENOSPC || error_number == EDQUOT) message += "; free some space and run it again";
  throw IoError(message, error_number);
}

}  // namespace athanor
