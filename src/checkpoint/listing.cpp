#include "checkpoint/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rotation.h"
#include "checkpoint/step_words.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char *kFullFolder = "checkpoints", *kModelFolder = "models", *kModelProgress = "athanor.json";
constexpr uint64_t kMostProgressBytes = 64 << 20;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Returns the step and state that a folder's name shows: "step-00000500", "not-finite-step-00000500", and hidden names
/// such as ".step-00000500.tmp", ".step-00000500.parts.tmp" and ".step-00000500.replaced".
std::optional<FoundCheckpoint> parse_name(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool hidden = name.starts_with('.');
  const size_t begin = name.rfind("step-");
  if (begin == name.npos) return std::nullopt;
  const size_t end = std::min(name.size(), name.find_first_not_of("0123456789", begin + std::strlen("step-")));
  const std::string_view ending = std::string_view(name).substr(end);
  const auto step = step_of_folder_name(std::string_view(name).substr(begin, end - begin));
  if (!step || hidden == ending.empty()) return std::nullopt;
  if (!hidden)
    return FoundCheckpoint{path, *step, {}, begin == 0 ? CheckpointState::kThere : CheckpointState::kPutAside};
  if (ending == ".replaced") return FoundCheckpoint{path, *step, {}, CheckpointState::kReplaced};
  if (!ending.ends_with(".tmp")) return std::nullopt;
  return FoundCheckpoint{path, *step, {}, CheckpointState::kUnfinished};
}

/// Returns the names in a folder, none if it has disappeared.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error && error != std::errc::no_such_file_or_directory)
    throw IoError("cannot read folder " + folder.string() + ": " + error.message(), error.value());
  return entries;
}

void find_in(const fs::path& folder, CheckpointKind kind, bool abandoned, std::vector<FoundCheckpoint>& all) {
  for (const auto& path : entries_of(folder)) {
    if (!is_folder(path)) continue;
    if (!abandoned && path.filename().string().starts_with("abandoned-")) {
      find_in(path, kind, true, all);
    } else if (auto found = parse_name(path)) {
      found->kind = kind;
      if (abandoned) found->state = CheckpointState::kAbandoned;
      all.push_back(*found);
    }
  }
}

bool is_run_folder(const fs::path& path) {
  return is_folder(path / kFullFolder) || is_folder(path / kModelFolder) || is_file(path / "events.jsonl") ||
         is_file(path / "config.toml");
}

/// Refuses a folder whose manifest.json is one of something else, such as prepared data. A folder with the name of a
/// checkpoint may be a damaged one.
void check_manifest_is_of_checkpoint(const fs::path& path) {
  constexpr size_t kStart = 4096;  // the format is among the first keys
  std::string start(kStart, '\0');
  with_io_errors([&] { start.resize(FileReader(path / kManifestName).read_up_to(0, start.data(), kStart)); });
  if (start.starts_with(kManifestHashStart)) return;
  const bool is_data = start.find("\"athanor-data\"") != start.npos;
  fail<CheckpointError>(
      "{} is no checkpoint: its {} is that of {}; {}", path.string(), kManifestName,
      is_data ? "prepared data" : "something else",
      is_data ? "verify prepared data with athanor data verify" : "name a run folder or a checkpoint");
}

/// Returns the checkpoint or model that the folder itself is.
std::optional<FoundCheckpoint> itself(const fs::path& path) {
  const bool full = is_file(path / kManifestName);
  auto found = parse_name(fs::absolute(path / "x").lexically_normal().parent_path());
  if (!full && !is_hf_folder(path) && !found) return std::nullopt;
  if (full && !found) check_manifest_is_of_checkpoint(path);
  if (!found) found = FoundCheckpoint{path, -1, CheckpointKind::kFull, CheckpointState::kThere};
  found->path = path;
  found->kind = full || !is_hf_folder(path) ? CheckpointKind::kFull : CheckpointKind::kModel;
  return found;
}

/// Returns the rank's part of "pieces-00017-00003.safetensors"; the files of a single rank have one number.
std::string writer_of(const std::string& file) {
  return std::count(file.begin(), file.end(), '-') > 1 ? file.substr(0, file.rfind('-')) : "pieces";
}

struct FilesOfFolder {
  uint64_t num_bytes = 0;
  int64_t num_files = 0, newest_s = 0;
  std::set<std::string> writers;
};

FilesOfFolder look_at_files(const fs::path& folder) {
  FilesOfFolder all;
  const std::function<void(const fs::path&, int)> look = [&](const fs::path& in, int depth) {
    for (const auto& path : entries_of(in)) {
      struct stat status {};
      if (::lstat(path.c_str(), &status) != 0) continue;  // it has disappeared
      if (S_ISDIR(status.st_mode)) {
        if (depth < 3) look(path, depth + 1);
        continue;
      }
      const auto name = path.filename().string();
      ++all.num_files;
      all.num_bytes += static_cast<uint64_t>(status.st_size);
      if (name.ends_with(".safetensors") || name == kManifestName)
        all.newest_s = std::max<int64_t>(all.newest_s, status.st_mtime);
      if (name.starts_with("pieces-")) all.writers.insert(writer_of(name));
    }
  };
  look(folder, 0);
  return all;
}

nlohmann::json read_model_progress(const fs::path& file) {
  ATHANOR_CHECK_CHECKPOINT(fs::file_size(file) <= kMostProgressBytes, "{}: has {} bytes, expected at most {}",
                           file.string(), fs::file_size(file), kMostProgressBytes);
  return parse_strict_json(read_file(file), file.string());
}

void read_state(DescribedCheckpoint& described) {
  nlohmann::json state;
  const auto& path = described.found.path;
  if (described.found.kind == CheckpointKind::kModel) {
    if (!is_file(path / kModelProgress)) return;  // a model from elsewhere
    state = read_model_progress(path / kModelProgress);
  } else {
    ATHANOR_CHECK_CHECKPOINT(is_file(path / kManifestName), "it has no {}", kManifestName);
    auto summary = read_manifest_summary(path / kManifestName);
    described.version = shown_text(summary.version);
    described.commit = shown_text(summary.commit);
    state = std::move(summary.state);
  }
  const std::string where = path.string();
  if (state.contains("tokens_seen")) described.tokens_seen = json_size(state, "tokens_seen", where);
  if (!state.contains("step")) return;
  const int64_t step = json_size(state, "step", where);
  int64_t& named = described.found.step;
  ATHANOR_CHECK_CHECKPOINT(named < 0 || named == step, "its name is of step {}, its state of step {}", named, step);
  named = step;
}

}  // namespace

const char* name_of(CheckpointKind kind) { return kind == CheckpointKind::kFull ? "full" : "model"; }

const char* name_of(CheckpointState state) {
  switch (state) {
    case CheckpointState::kThere: return "there";
    case CheckpointState::kUnfinished: return "unfinished";
    case CheckpointState::kReplaced: return "replaced";
    case CheckpointState::kAbandoned: return "abandoned";
    case CheckpointState::kPutAside: return "put aside";
  }
  return "";
}

std::vector<FoundCheckpoint> find_checkpoints(const fs::path& named) {
  const fs::path path = find_step_folder(named);
  ATHANOR_CHECK_CHECKPOINT(is_folder(path), "{}: no such folder; expected a run folder or a checkpoint", path.string());
  std::vector<FoundCheckpoint> all;
  if (!is_file(path / kManifestName) && is_run_folder(path)) {
    find_in(path / kFullFolder, CheckpointKind::kFull, false, all);
    find_in(path / kModelFolder, CheckpointKind::kModel, false, all);
  } else if (const auto one = itself(path)) {
    all.push_back(*one);
  } else {
    const auto name = fs::absolute(path / "x").lexically_normal().parent_path().filename();
    find_in(path, name == kModelFolder ? CheckpointKind::kModel : CheckpointKind::kFull, false, all);
    ATHANOR_CHECK_CHECKPOINT(!all.empty() || name == kModelFolder || name == kFullFolder,
                             "{} is not a run folder, nor a checkpoint or a folder of them; name one of these",
                             path.string());
  }
  std::stable_sort(all.begin(), all.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return a.step != b.step ? a.step > b.step : a.path.string() < b.path.string();
  });
  return all;
}

std::optional<DescribedCheckpoint> describe_checkpoint(const FoundCheckpoint& found) {
  DescribedCheckpoint described;
  described.found = found;
  const auto files = look_at_files(found.path);
  described.num_bytes = files.num_bytes;
  described.num_files = files.num_files;
  described.written_s = files.newest_s;
  if (found.kind == CheckpointKind::kFull) described.num_ranks = static_cast<int64_t>(files.writers.size());
  // While it is written or deleted, what a file states is not known.
  try {
    if (found.state != CheckpointState::kUnfinished) with_io_errors([&] { read_state(described); });
  } catch (const Error& error) {
    described.problem = error.what();
  }
  if (!is_folder(found.path)) return std::nullopt;
  return described;
}

uint64_t bytes_below(const fs::path& folder) { return look_at_files(folder).num_bytes; }

}  // namespace athanor::inline checkpoint
