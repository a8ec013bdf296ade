#include "saves/path_in_run.h"

#include "checkpoint/rotation.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

fs::path without_end(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }  // "step-1/"

fs::path as_written(const fs::path& path) { return without_end(fs::absolute(path).lexically_normal()); }

// Resolves the links of its parents, but not its own.
fs::path resolved_beside(const fs::path& path) {
  const auto full = without_end(fs::absolute(path));
  if (full.filename() == "." || full.filename() == "..") return resolved(path);
  return resolved(full.parent_path()) / full.filename();
}

std::string below(const fs::path& folder, const fs::path& path) {
  const auto relative = path.lexically_relative(folder);
  return relative.empty() || *relative.begin() == ".." ? "" : relative.generic_string();
}

}  // namespace

fs::path resolved(const fs::path& path) {
  std::error_code error;
  const auto found = fs::weakly_canonical(fs::absolute(path), error);
  return error ? as_written(path) : without_end(found);
}

std::string path_in_run(const fs::path& root, const fs::path& path) {
  const std::string written = below(as_written(root), as_written(path));
  std::error_code unknown;  // ".." after a link leads elsewhere than the text suggests
  if (!written.empty() && (!fs::exists(path, unknown) || fs::equivalent(root / written, path, unknown))) return written;
  for (const fs::path& at : {resolved_beside(path), resolved(path)}) {
    for (const char* part : {"", "checkpoints", "models"}) {
      const std::string place = below(resolved(root / part), at);
      if (place == ".") return *part ? part : ".";
      if (!place.empty()) return (fs::path(part) / place).generic_string();
    }
  }
  return "";
}

bool is_own_step(const std::string& place) {
  const fs::path path(place);
  const bool kept = path.parent_path() == "checkpoints" || path.parent_path() == "models";
  return kept && step_of_folder_name(path.filename().string()).has_value();
}

}  // namespace athanor::inline saves
