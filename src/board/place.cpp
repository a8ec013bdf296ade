#include "board/place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"

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
  return place_at(stem, run);
}

Place place_at(const fs::path& memory, const std::string& run) {
  const std::string stem = memory.string();
  return {run, stem, stem + ".lock", stem + ".socket", stem + ".stacks"};
}

std::vector<Place> places_of_this_node(const fs::path& run_dir) {
  const fs::path folder = board_folder().empty() ? "/dev/shm" : board_folder();
  std::set<uid_t> users{::geteuid()};
  struct stat found {};
  if (::stat(run_dir.c_str(), &found) == 0) users.insert(found.st_uid);
  std::vector<Place> places;
  for (const uid_t user : users) places.push_back(place_of(folder, run_dir, host_name(), user));
  return places;
}

fs::path reports_of(const fs::path& run_dir) { return run_dir / "board"; }

fs::path requests_of(const fs::path& run_dir) { return reports_of(run_dir) / "requests"; }

}  // namespace athanor::board
