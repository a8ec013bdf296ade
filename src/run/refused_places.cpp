#include "run/refused_places.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/error.h"
#include "config/training_stages.h"
#include "saves/path_in_run.h"

namespace athanor::inline run {
namespace fs = std::filesystem;
namespace {

bool holds(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(folder / name, ignored);
}

// Returns true for a manifest of data or of a checkpoint, by the format that it names at its beginning: other programs
// also have files of this name.
bool holds_our_manifest(const fs::path& folder) {
  constexpr size_t kBeginning = 4096;  // a checkpoint's may have 250 MB
  std::string text(kBeginning, '\0');
  std::ifstream file(folder / "manifest.json", std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text.find("\"athanor-data\"") != std::string::npos || text.find("\"athanor-checkpoint\"") != std::string::npos;
}

// Returns the folder that contains `path` below `root`; empty if it is not below it.
std::string folder_below(const fs::path& root, const fs::path& path) {
  const auto relative = path.lexically_relative(root);
  if (relative.empty() || *relative.begin() == ".." || *relative.begin() == ".") return "";
  return relative.begin()->string();
}

}  // namespace

void refuse_misplaced_run(const RunConfig& config) {
  const fs::path run = resolved(config.train.run_dir);
  for (fs::path at = run;; at = at.parent_path()) {
    ATHANOR_CHECK(
        !holds_our_manifest(at),
        "train.run_dir ({}) {} {}, which contains prepared data or a checkpoint (manifest.json); name another "
        "folder",
        config.train.run_dir, at == run ? "is" : "is inside", at.string());
    ATHANOR_CHECK(at == run || !(holds(at, "metrics.jsonl") && holds(at, "config.toml")),
                  "train.run_dir ({}) is inside {}, the folder of another run; name a folder outside it",
                  config.train.run_dir, at.string());
    if (at == at.parent_path()) break;
  }
  static const std::set<std::string> kOwn = {"checkpoints", "models",  "log",      "tensorboard",
                                             "evals",       "configs", "attempts", "board"};
  for (const auto& stage : training_stages(config)) {
    for (const auto& source : stage.config.data.sources) {
      const auto own = folder_below(run, resolved(source.path));
      ATHANOR_CHECK(!kOwn.contains(own),
                    "the data in {} are in {}, a folder that the run in train.run_dir ({}) writes; move one of them",
                    source.path, (run / own).string(), config.train.run_dir);
    }
  }
}

void refuse_moved_run(const std::string& config_file, const RunConfig& config) {
  const fs::path folder = resolved(config_file).parent_path();
  const bool is_kept = fs::path(config_file).filename() == "config.toml" && holds(folder, "events.jsonl");
  ATHANOR_CHECK(!is_kept || resolved(config.train.run_dir) == folder,
                "{} is of the run in {}, but has train.run_dir = \"{}\", where it was before: add --set "
                "train.run_dir={} to continue it, or name another train.run_dir to begin a run like it",
                config_file, folder.string(), config.train.run_dir, folder.string());
}

}  // namespace athanor::inline run
