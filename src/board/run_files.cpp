#include "board/run_files.h"

#include <cerrno>
#include <cstdio>

namespace athanor::board {

bool replace_unsynced(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path temporary = file.parent_path() / ("." + file.filename().string() + ".tmp");
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
