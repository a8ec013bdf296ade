#include "checkpoint/removal.h"

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rotation.h"
#include "checkpoint/verification.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

/// Returns the folder of each step, each once.
std::vector<StepFolder> choose(const RemovalRequest& request, const std::vector<StepFolder>& all,
                               const fs::path& folder) {
  std::vector<StepFolder> chosen;
  for (const int64_t step : request.steps) {
    const auto has_step = [&](const StepFolder& each) { return each.step == step; };
    if (std::ranges::any_of(chosen, has_step)) continue;
    const auto found = std::ranges::find_if(all, has_step);
    if (found == all.end()) {
      std::vector<std::string> steps;
      for (const auto& each : all) steps.push_back(std::to_string(each.step));
      fail<ConfigError>("{} holds nothing of step {}; there are {}; nothing was removed", folder.string(), step,
                        steps.empty() ? "none" : join_first(steps, 10));
    }
    ATHANOR_CHECK(!fs::is_symlink(found->path), "{} is a link; remove it and what it points to by hand",
                  found->path.string());
    chosen.push_back(*found);
  }
  return chosen;
}

bool verifies(const StepFolder& each, const RemovalRequest& request) {
  try {
    if (request.kind == CheckpointKind::kFull) {
      verify_checkpoint(each.path, request.num_threads);
    } else {
      verify_model(each.path);
    }
    return true;
  } catch (const NewerFormatError& error) {
    log::warn("taken to be whole: {}", error.what());
    return true;
  } catch (const CheckpointError& error) {  // what cannot be read may be whole, so an IoError ends all
    log::warn("not whole: {}", error.what());
    return false;
  }
}

/// Refuses to remove the newest one that is whole. Newer ones that are damaged may be removed.
void protect_newest(const RemovalRequest& request, const std::vector<StepFolder>& all,
                    const std::vector<StepFolder>& chosen) {
  for (const auto& each : all) {
    const bool is_chosen = std::ranges::any_of(chosen, [&](const auto& one) { return one.step == each.step; });
    if (!verifies(each, request)) continue;
    ATHANOR_CHECK(!is_chosen,
                  "{} is the newest {} that is whole, and the run would continue from it; leave it, or give --force; "
                  "nothing was removed",
                  each.path.string(), request.kind == CheckpointKind::kFull ? "checkpoint" : "model");
    return;
  }
}

RemovedCheckpoint remove_one(const fs::path& path) {
  const RemovedCheckpoint removed{path, bytes_below(path)};
  const fs::path hidden = hide_checkpoint(path);
  fault_point("checkpoint.remove");
  remove_tree(hidden);
  return removed;
}

}  // namespace

std::vector<RemovedCheckpoint> remove_checkpoints(const RemovalRequest& request) {
  return with_io_errors([&] {
    const fs::path folder = request.run / (request.kind == CheckpointKind::kFull ? "checkpoints" : "models");
    ATHANOR_CHECK(fs::is_directory(request.run), "{}: no such folder; expected a run folder", request.run.string());
    ATHANOR_CHECK(fs::is_directory(folder), "{} is not a run folder with {}: there is no folder {}",
                  request.run.string(), folder.filename().string(), folder.string());
    const FolderLock lock(request.run, {.remedy = "wait until it has ended, or end it"});
    const auto all = list_checkpoints(folder);
    const auto chosen = choose(request, all, folder);
    if (!request.force) protect_newest(request, all, chosen);
    std::vector<RemovedCheckpoint> removed;
    for (const auto& each : chosen) removed.push_back(remove_one(each.path));
    return removed;
  });
}

}  // namespace athanor::inline checkpoint
