#include "documents/wildcard.h"

#include <fnmatch.h>

namespace athanor::inline documents {
namespace fs = std::filesystem;

namespace {

bool name_matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
}

using Names = std::vector<fs::path>;

// Adds to `found` the paths below `folder` (empty: the current one) that match the pattern's names from `at` on.
void match_below(const fs::path& folder, const Names& pattern, size_t at, std::vector<fs::path>& found) {
  if (at == pattern.size()) {
    found.push_back(folder);
    return;
  }
  const std::string name = pattern[at].string();
  std::error_code error;
  if (!has_wildcard(name)) {
    if (fs::exists(folder / name, error)) match_below(folder / name, pattern, at + 1, found);
    return;
  }
  const bool any_depth = name == "**";
  if (any_depth && at + 1 < pattern.size()) match_below(folder, pattern, at + 1, found);
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const auto child = folder / entry.path().filename();
    const bool is_folder = entry.is_directory(error);
    if (!name_matches(any_depth ? "*" : name, entry.path().filename().string())) continue;
    if (any_depth) {
      if (is_folder) {
        if (!entry.is_symlink(error)) match_below(child, pattern, at, found);  // a link upwards would never end
      } else if (at + 1 == pattern.size()) {
        found.push_back(child);  // a trailing ** means every file below
      }
    } else if (is_folder || at + 1 == pattern.size()) {
      match_below(child, pattern, at + 1, found);
    }
  }
}

}  // namespace

bool has_wildcard(const std::string& pattern) { return pattern.find_first_of("*?[") != std::string::npos; }

std::vector<fs::path> match_paths(const std::string& pattern) {
  const fs::path path(pattern);
  Names names;
  for (const auto& part : path.relative_path()) {
    if (!part.empty()) names.push_back(part);
  }
  std::vector<fs::path> found;
  match_below(path.root_path(), names, 0, found);
  return found;
}

}  // namespace athanor::inline documents
