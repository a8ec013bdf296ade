#include "board/place.h"

#include <cstdlib>

#include "base/error.h"
#include "base/hash.h"

namespace athanor::board {
namespace fs = std::filesystem;

fs::path board_folder() {
  const char* text = std::getenv("ATHANOR_BOARD");
  if (!text || !*text) return "/dev/shm";
  if (text == std::string("off")) return {};
  ATHANOR_CHECK(*text == '/',
                "ATHANOR_BOARD={}: expected off, or the absolute path of a folder in memory; unset it for /dev/shm",
                text);
  return text;
}

fs::path absolute_path(const fs::path& path) {
  std::error_code failed;
  const fs::path real = fs::weakly_canonical(fs::absolute(path), failed);
  return failed ? path : real;
}

Place place_of(const fs::path& folder, const fs::path& run_dir, const std::string& node, uid_t user) {
  const std::string key = absolute_path(run_dir).string() + '\n' + node + '\n' + std::to_string(user);
  const std::string run = hash_hex(key);
  // A socket's path has at most 107 characters.
  const std::string stem = (folder / ("athanor-board-" + run.substr(0, 16))).string();
  return {run, stem, stem + ".lock", stem + ".socket"};
}

fs::path reports_of(const fs::path& run_dir) { return run_dir / "board"; }

}  // namespace athanor::board
