#include "checkpoint/moved_aside.h"

#include <system_error>

#include "base/error.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;

fs::path MovedAside::aside_name(const fs::path& path) {
  return path.parent_path() / ("." + path.filename().string() + ".replaced");
}

void MovedAside::move_now() {
  if (!fs::exists(path_)) return;
  const auto aside = aside_name(path_);
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(path_, aside, error);
  if (error) {
    throw IoError("cannot rename " + path_.string() + " to " + aside.string() + ": " + error.message(), error.value());
  }
  moved_ = true;
}

MovedAside::~MovedAside() {
  if (!moved_) return;
  std::error_code ignored;
  if (fs::exists(path_, ignored)) {
    fs::remove_all(aside_name(path_), ignored);
  } else {
    fs::rename(aside_name(path_), path_, ignored);
  }
}

}  // namespace athanor::inline checkpoint
