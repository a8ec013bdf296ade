#include "board/place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/file_moves.h"
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

bool replace_unsynced(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path temporary = temporary_name(file);
  std::FILE* out = std::fopen(temporary.c_str(), "we");
  if (!out) return false;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  if (std::fclose(out) == 0 && is_written && std::rename(temporary.c_str(), file.c_str()) == 0) return true;
  const int error = errno;
  std::remove(temporary.c_str());
  errno = error;
  return false;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  // A loop over the entries would throw if the next one cannot be read.
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    names.push_back(entry->path().filename().string());
  return names;
}

}  // namespace athanor::board
