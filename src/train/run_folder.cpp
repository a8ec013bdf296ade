#include "train/run_folder.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/rotation.h"
#include "config/changes.h"
#include "config/dump.h"
#include "train/last_words.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw IoError("cannot create folder " + path.string() + ": " + error.message(), error.value());
}

void rename_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    throw IoError("cannot rename " + from.string() + " to " + to.string() + ": " + error.message(), error.value());
}

// "metrics.jsonl" → "metrics-004.jsonl": what the attempts up to that one have told.
fs::path of_attempt(const fs::path& path, int64_t attempt) {
  return path.parent_path() / fmt::format("{}-{:03}{}", path.stem().string(), attempt, path.extension().string());
}

// Beside the others, since either folder may be a link to another disk; under a name that no rotation knows.
std::vector<std::string> move_aside(const Beginning& begin) {
  std::vector<std::string> moved;
  for (const fs::path& each : begin.abandoned) {
    if (!fs::exists(each)) continue;  // clean_leftovers gave it its name back
    const fs::path folder = each.parent_path() / fmt::format("abandoned-{:03}", begin.attempt);
    make_folder(folder);
    rename_to(each, folder / each.filename());
    moved.push_back((folder / each.filename()).string());
  }
  return moved;
}

// Lines of another course are not told again, and lines of a run that begins at step 0 again not at all: both stay.
void keep_metrics(const RunFolder& folder, const Beginning& begin, bool goes_back) {
  if (!fs::exists(folder.metrics())) return;
  const fs::path kept = of_attempt(folder.metrics(), begin.attempt - 1);
  if (begin.from == Beginning::From::kNothing) return rename_to(folder.metrics(), kept);
  if (goes_back) write_file_atomically(kept, read_file(folder.metrics()));
}

std::vector<std::string> keep_configuration(const RunFolder& folder, const RunConfig& config, int64_t attempt) {
  const std::string now = dump_run_config(config);
  std::vector<std::string> changes;
  if (fs::exists(folder.config())) {
    const std::string before = read_file(folder.config());
    if (before == now) return {};
    changes = describe_config_changes(before, config);
    if (!changes.empty()) {
      make_folder(folder.configs());
      write_file_atomically(of_attempt(folder.configs() / "config.toml", attempt - 1), before);
    }
  }
  write_file_atomically(folder.config(), now);
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
  const auto& [config, begin, tokenizer, dispatch_record, matmul_record] = opening;
  const RunFolder folder{config.train.run_dir};
  for (const auto& path : {folder.checkpoints(), folder.models(), folder.log()}) make_folder(path);
  clean_leftovers(folder.checkpoints());
  clean_leftovers(folder.models());
  OpenedFolder opened;
  keep_metrics(folder, begin, !begin.abandoned.empty());
  opened.abandoned = move_aside(begin);
  set_aside_last_words(folder.root, begin.attempt - 1);
  opened.changes = keep_configuration(folder, config, begin.attempt);
  keep_tokenizer(folder, tokenizer);
  if (!dispatch_record.empty()) write_file_atomically(folder.dispatch(), dispatch_record);
  if (!matmul_record.empty()) write_file_atomically(folder.matmul(), matmul_record);
  log::also_to_file(folder.log_file().string());
  return opened;
}

}  // namespace athanor
