#include "run/open_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/rotation.h"
#include "config/changes.h"
#include "config/dump.h"
#include "metrics/metrics_log.h"
#include "record/last_words.h"
#include "record/numbered.h"
#include "record/run_folder.h"

namespace athanor::inline run {
namespace fs = std::filesystem;
namespace {

// A process that was killed at this point may have written the same already.
fs::path free_name(const fs::path& path, int64_t attempt, const std::string& text) {
  return of_attempt(path, free_number(attempt, [&](int64_t number) {
                      const fs::path name = of_attempt(path, number);
                      return is_taken(name) && !(fs::is_regular_file(name) && read_file(name) == text);
                    }));
}

// Returns a name such as "abandoned-004" under which there is nothing yet. It is next to each folder, since either may
// be a link to another disk, and no rotation uses the name.
std::string name_for_abandoned(const ResumePoint& begin) {
  const auto name = [](int64_t number) { return fmt::format("abandoned-{:03}", number); };
  return name(free_number(begin.attempt, [&](int64_t number) {
    return std::ranges::any_of(begin.abandoned, [&](const fs::path& each) {
      const fs::path folder = each.parent_path() / name(number);
      return is_taken(folder) && (!fs::is_directory(folder) || is_taken(folder / each.filename()));
    });
  }));
}

// The files of earlier attempts to keep, and where: all are read and named before anything changes.
struct Kept {
  std::string abandoned;
  fs::path metrics;               // empty if none are kept
  std::string config, config_is;  // before, and now; empty if there was none
  fs::path config_name;
};

Kept choose_what_is_kept(const FolderOpening& opening, const RunFolder& folder) {
  const ResumePoint& begin = opening.begin;
  Kept kept;
  kept.abandoned = name_for_abandoned(begin);
  // Lines of another branch are not reported again, and a run that begins at step 0 again reports none of its lines:
  // both stay.
  const bool from_nothing = begin.from == ResumePoint::From::kNothing && fs::exists(folder.metrics());
  if (from_nothing || (begin.anew && tells_more_than(folder.metrics(), opening.step)))
    kept.metrics = free_name(folder.metrics(), begin.attempt - 1, read_file(folder.metrics()));
  kept.config_is = dump_run_config(opening.config);
  if (fs::exists(folder.config())) kept.config = read_file(folder.config());
  kept.config_name = free_name(folder.configs() / "config.toml", begin.attempt - 1, kept.config);
  return kept;
}

std::vector<std::string> move_aside(const ResumePoint& begin, const std::string& name) {
  std::vector<std::string> moved;
  for (const fs::path& each : begin.abandoned) {
    if (!fs::exists(each)) continue;  // clean_leftovers has restored its name
    const fs::path folder = each.parent_path() / name;
    create_folders(folder);
    rename_path(each, folder / each.filename());
    moved.push_back((folder / each.filename()).string());
  }
  return moved;
}

void keep_metrics(const RunFolder& folder, const ResumePoint& begin, const fs::path& name) {
  if (name.empty()) return;
  if (begin.from == ResumePoint::From::kNothing) return rename_path(folder.metrics(), name);
  write_file_atomically(name, read_file(folder.metrics()));
}

std::vector<std::string> keep_configuration(const RunFolder& folder, const RunConfig& config, const Kept& kept) {
  if (kept.config == kept.config_is) return {};
  std::vector<std::string> changes;
  if (!kept.config.empty()) changes = describe_config_changes(kept.config, config);
  if (!changes.empty()) {
    create_folders(folder.configs());
    write_file_atomically(kept.config_name, kept.config);
  }
  write_file_atomically(folder.config(), kept.config_is);
  return changes;
}

void keep_tokenizer(const RunFolder& folder, const fs::path& tokenizer) {
  if (!fs::exists(tokenizer)) return;
  const fs::path own = folder.root / tokenizer_file_name(tokenizer);
  const std::string text = read_file(tokenizer);
  if (!fs::exists(own) || read_file(own) != text) write_file_atomically(own, text);
}

}  // namespace

OpenedFolder open_run_folder(const FolderOpening& opening) {
  const auto& [config, begin, step, tokenizer, dispatch_record, matmul_record, not_finite] = opening;
  const RunFolder folder{config.train.run_dir};
  const Kept kept = choose_what_is_kept(opening, folder);
  create_folders(folder.root);
  // This comes first, so that a process which is killed at this point leaves a run that has begun rather than unknown
  // remains.
  std::ofstream(folder.events(), std::ios::app);
  for (const auto& path : {folder.checkpoints(), folder.models(), folder.log()}) create_folders(path);
  clean_leftovers(folder.checkpoints());
  clean_leftovers(folder.models());
  OpenedFolder opened;
  keep_metrics(folder, begin, kept.metrics);
  opened.abandoned = move_aside(begin, kept.abandoned);
  if (not_finite) opened.not_finite = put_aside(not_finite->path, not_finite->first).string();
  set_aside_last_words(folder.root, begin.attempt - 1);
  opened.changes = keep_configuration(folder, config, kept);
  keep_tokenizer(folder, tokenizer);
  if (!dispatch_record.empty()) write_file_atomically(folder.dispatch(), dispatch_record);
  if (!matmul_record.empty()) write_file_atomically(folder.matmul(), matmul_record);
  log::also_to_file(folder.log_file().string());
  return opened;
}

}  // namespace athanor::inline run
