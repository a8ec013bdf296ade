#include "plot/evals_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "plot/run_name.h"
#include "plot/score_entries.h"

namespace athanor::inline plot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostNamed = 3;       // files in a warning
constexpr size_t kMostTasks = 20'000;  // in a file: all of lm_eval are about 13,000

// The step in a name such as step-00000500.json or step-00000500-1a2b3c4d.json; −1 if there is none.
int64_t step_in_name(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::string_view kBefore = "step-";
  constexpr size_t kMostDigits = 18;  // an int64_t holds all numbers of this length
  if (!name.starts_with(kBefore)) return -1;
  const size_t end = std::min(name.find_first_not_of("0123456789", kBefore.size()), name.size());
  const std::string digits = name.substr(kBefore.size(), end - kBefore.size());
  return digits.empty() || digits.size() > kMostDigits ? -1 : std::stoll(digits);
}

// The results in the file, with a step; nothing if it has none.
std::optional<Json> read_checkpoint_results(const fs::path& file) {
  Json results;
  try {
    results = read_ordered_json(read_file(file));
  } catch (const IoError& error) {
    log::warn("{}", error.what());
    return std::nullopt;
  }
  const Json* scores = member_of(results, "results");
  if (!scores || !scores->is_object()) return std::nullopt;
  if (scores->size() > kMostTasks) {  // tables compare each task with all
    log::warn("{} has {} tasks, more than {}: passed over", file.string(), scores->size(), kMostTasks);
    return std::nullopt;
  }
  if (step_of_results(results) >= 0) return results;
  const int64_t step = step_in_name(file);
  if (step < 0) return std::nullopt;
  if (!member_of(results, "athanor") || !results["athanor"].is_object()) results["athanor"] = Json::object();
  results["athanor"]["step"] = step;
  return results;
}

struct FolderFiles {
  std::vector<fs::path> results, unfinished;
};

FolderFiles list_files(const fs::path& folder) {
  FolderFiles files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json.unfinished")) files.unfinished.push_back(entry.path());
    // A name with a dot is that of a file that is being written.
    if (name.ends_with(".json") && !name.starts_with(".") && !entry.is_directory())
      files.results.push_back(entry.path());
  }
  std::ranges::sort(files.results);
  std::ranges::sort(files.unfinished);
  return files;
}

void warn_of(const std::vector<std::string>& files, const char* what) {
  if (!files.empty()) log::warn("left out: {} ({}): {}", what, files.size(), join_first(files, kMostNamed));
}

RunResults read_folder(const std::string& name, const fs::path& folder) {
  RunResults run{name, {}};
  const FolderFiles files = list_files(folder);
  std::vector<std::string> foreign, unfinished;
  for (const auto& file : files.results) {
    if (auto results = read_checkpoint_results(file)) {
      run.results.push_back(std::move(*results));
    } else {
      foreign.push_back(file.string());
    }
  }
  for (const auto& file : files.unfinished) unfinished.push_back(file.string());
  warn_of(foreign, "files that are no results of a checkpoint");
  warn_of(unfinished, "evaluations that are not finished, which the same athanor eval continues");
  return run;
}

RunResults read_place(const std::string& given, const fs::path& place) {
  const std::string name = name_of_run(given);
  RunResults run{name, {}};
  if (fs::is_directory(place)) {
    run = read_folder(name, place);
  } else if (auto results = read_checkpoint_results(place)) {
    run.results.push_back(std::move(*results));
  }
  ATHANOR_CHECK(!run.results.empty(),
                "{} has no results of a run's checkpoints (those of a folder of transformers have no step); evaluate "
                "them with `athanor eval RUN --every`, or name a run "
                "folder, a folder of results, or a file of results",
                place.string());
  return run;
}

// A run's own folder of results, or the place itself.
fs::path place_of(const std::string& given) {
  ATHANOR_CHECK(fs::exists(given), "{} does not exist; name the folder of a run (train.run_dir)", given);
  const fs::path own = fs::path(given) / "evals";
  return fs::is_directory(own) ? own : fs::path(given);
}

}  // namespace

std::vector<RunResults> read_evaluations(const std::vector<std::string>& places) {
  return with_io_errors([&] {
    std::vector<RunResults> runs;
    std::vector<fs::path> read;
    for (const auto& given : places) {
      const fs::path place = place_of(given);
      const auto same = [&](const fs::path& other) { return fs::equivalent(place, other); };
      if (std::ranges::any_of(read, same)) {
        log::warn("{} is named twice; it is drawn once", given);
        continue;
      }
      runs.push_back(read_place(given, place));
      read.push_back(place);
    }
    return runs;
  });
}

}  // namespace athanor::inline plot
