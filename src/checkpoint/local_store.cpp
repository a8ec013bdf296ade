#include "checkpoint/local_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/rotation.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kPartFormat = "athanor-local-checkpoint";
constexpr const char* kRunFormat = "athanor-local-checkpoints";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxWriters = 10'000'000;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 28;  // 12,288 ranks take one megabyte
constexpr size_t kIdDigits = 16;

bool is_id(const std::string& text) {
  return text.size() == kIdDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

json read_object(const fs::path& file) {
  ATHANOR_CHECK_CHECKPOINT(fs::is_regular_file(file), "{} is missing", file.string());
  ATHANOR_CHECK_CHECKPOINT(fs::file_size(file) <= kMaxTextBytes, "{} is too large", file.string());
  json read = read_json(read_file(file));
  ATHANOR_CHECK_CHECKPOINT(read.is_object(), "{} is not a JSON object", file.string());
  return read;
}

std::string text_of(const json& object, const char* key, const fs::path& file) {
  const auto found = object.find(key);
  ATHANOR_CHECK_CHECKPOINT(found != object.end() && found->is_string(), "{} lacks a text \"{}\"", file.string(), key);
  return found->get<std::string>();
}

int64_t number_in(const json& value, int64_t end, const char* key, const fs::path& file) {
  ATHANOR_CHECK_CHECKPOINT(value.is_number_integer() && value >= 0 && value < end,
                           "{}: {} is {}, expected a whole number below {}", file.string(), key, value.dump(), end);
  return value.get<int64_t>();
}

int64_t number_of(const json& object, const char* key, int64_t end, const fs::path& file) {
  return number_in(object.value(key, json()), end, key, file);
}

void check_format(const json& read, const char* format, const fs::path& file) {
  ATHANOR_CHECK_CHECKPOINT(text_of(read, "format", file) == format, "{} has another format than {}", file.string(),
                           format);
  const int64_t version = number_of(read, "version", INT64_MAX, file);
  ATHANOR_CHECK_CHECKPOINT(version == kVersion, "{} has version {}, and this program knows {}", file.string(), version,
                           kVersion);
}

LocalPart read_part(const fs::path& folder, const LocalRun& run) {
  const fs::path file = folder / kWhereName;
  const json read = read_object(file);
  check_format(read, kPartFormat, file);
  const std::string id = text_of(read, "run", file), run_dir = text_of(read, "run_dir", file);
  ATHANOR_CHECK_CHECKPOINT(id == run.id && run_dir == run.run_dir, "{} is of another run ({} in {})", file.string(), id,
                           run_dir);
  LocalPart part;
  part.step = number_of(read, "step", INT64_MAX, file);
  part.attempt = number_of(read, "attempt", INT64_MAX, file);
  part.writers = static_cast<int>(number_of(read, "writers", kMaxWriters, file));
  ATHANOR_CHECK_CHECKPOINT(part.step == step_of_folder_name(folder.filename().string()),
                           "{} is of step {}, which is not that of its folder", file.string(), part.step);
  const json sources = read.value("pieces", json());
  ATHANOR_CHECK_CHECKPOINT(sources.is_array(), "{} lacks a list \"pieces\"", file.string());
  for (const json& source : sources) {
    const json writers = source.is_object() ? source.value("writers", json()) : json();
    ATHANOR_CHECK_CHECKPOINT(writers.is_array(), "{}: pieces without a list of writers", file.string());
    for (const json& writer : writers)
      part.kept.push_back(static_cast<int>(number_in(writer, part.writers, "writer", file)));
  }
  return part;
}

}  // namespace

std::string prefix_of_writer(int writer) { return fmt::format("pieces-{:05}", writer); }

std::string part_name(int writer) { return prefix_of_writer(writer) + ".json"; }

int writer_of_file(const std::string& file_name) {
  constexpr std::string_view kPrefix = "pieces-";
  const std::string digits =
      file_name.starts_with(kPrefix)
          ? file_name.substr(kPrefix.size(), file_name.find('-', kPrefix.size()) - kPrefix.size())
          : "";
  const bool is_number = !digits.empty() && digits.size() <= 9 && digits.find_first_not_of("0123456789") == digits.npos;
  ATHANOR_CHECK_CHECKPOINT(is_number, "{} is no name of a file of pieces", file_name);
  return std::stoi(digits);
}

LocalStore::LocalStore(LocalRun run, std::string node)
    : run_(std::move(run)), node_(std::move(node)), root_(run_.local_dir / ("athanor-" + run_.id) / node_) {
  ATHANOR_ASSERT(is_id(run_.id));
}

fs::path LocalStore::folder_of(int64_t attempt) const { return root_ / fmt::format("attempt-{:03}", attempt); }

fs::path LocalStore::path(int64_t attempt, int64_t step) const { return folder_of(attempt) / step_folder_name(step); }

fs::path LocalStore::staging(int64_t attempt, int64_t step) const { return temporary_name(path(attempt, step)); }

std::vector<LocalPart> LocalStore::list(std::vector<std::string>& notes) const {
  std::vector<LocalPart> parts;
  try {
    if (!fs::exists(root_)) return parts;
    for (const auto& attempt : fs::directory_iterator(root_)) {
      for (const StepFolder& each : list_checkpoints(attempt.path())) {
        if (!fs::exists(each.path / kWhereName)) continue;
        try {
          LocalPart part = read_part(each.path, run_);
          ATHANOR_CHECK_CHECKPOINT(path(part.attempt, part.step) == each.path, "{} is not the folder of attempt {}",
                                   each.path.string(), part.attempt);
          parts.push_back(std::move(part));
        } catch (const Error& error) {
          notes.push_back(fmt::format("{}: a local checkpoint that cannot be used: {}", node_, error.what()));
        }
      }
    }
  } catch (const fs::filesystem_error& error) {
    notes.push_back(fmt::format("{}: {} cannot be read: {}", node_, root_.string(), error.code().message()));
  }
  std::ranges::sort(parts, std::greater<>(), [](const LocalPart& part) { return std::pair(part.step, part.attempt); });
  return parts;
}

uint64_t LocalStore::num_bytes() const {
  uint64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(root_, ignored))
    if (entry.is_regular_file(ignored)) bytes += entry.file_size(ignored);
  return bytes;
}

void LocalStore::begin(int64_t attempt, int64_t step) const {
  remove_tree(staging(attempt, step));
  create_folders(staging(attempt, step));
}

void LocalStore::commit(const LocalPart& part, const PartPlaces& places) const {
  ordered_json sources = ordered_json::array();
  for (const auto& [node, writers] : places.sources) sources.push_back({{"node", node}, {"writers", writers}});
  const ordered_json where = {{"format", kPartFormat},
                              {"version", kVersion},
                              {"run", run_.id},
                              {"run_dir", run_.run_dir.string()},
                              {"step", part.step},
                              {"attempt", part.attempt},
                              {"writers", part.writers},
                              {"node", node_},
                              {"partner", places.partner.empty() ? ordered_json() : ordered_json(places.partner)},
                              {"pieces", sources}};
  const fs::path staged = staging(part.attempt, part.step);
  write_file_atomically(staged / kWhereName, where.dump(2) + "\n");
  fault_point("checkpoint.local_commit");
  rename_path(staged, path(part.attempt, part.step));
  fault_point("checkpoint.local_commit");
}

void LocalStore::remove(const fs::path& path) const {
  if (const auto why = try_remove_tree(path); !why.empty()) log::warn("{}: {}; remove it by hand", node_, why);
}

void LocalStore::remove_others(const fs::path& folder, const fs::path& kept) const {
  std::error_code ignored;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path() != kept) others.push_back(entry.path());
  for (const fs::path& each : others) {
    remove(each);
    fault_point("checkpoint.local_commit");
  }
}

void LocalStore::keep_only(int64_t attempt, int64_t step) const {
  remove_others(root_, folder_of(attempt));
  remove_others(folder_of(attempt), path(attempt, step));
}

void LocalStore::drop_fetched(int64_t attempt, int64_t step) const {
  const fs::path folder = path(attempt, step);
  std::set<int> kept;
  try {
    const LocalPart part = read_part(folder, run_);
    kept.insert(part.kept.begin(), part.kept.end());
  } catch (const std::exception&) {
    return remove(folder);  // this node had nothing of it
  }
  std::error_code ignored;
  std::vector<fs::path> fetched;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_own = std::ranges::any_of(kept, [&](int writer) {
      return name == part_name(writer) || name.starts_with(prefix_of_writer(writer) + "-");
    });
    if (name != kWhereName && !is_own) fetched.push_back(entry.path());
  }
  for (const fs::path& each : fetched) remove(each);
}

void LocalStore::discard(int64_t attempt, int64_t step) const {
  try_remove_tree(staging(attempt, step));  // the failure to write there was reported
}

void LocalStore::remove_all() const {
  std::error_code not_empty;
  if (!fs::exists(root_, not_empty)) return;
  remove(root_);
  fs::remove(root_.parent_path(), not_empty);
}

std::vector<LocalStore> list_stores(const LocalRun& run) {
  std::vector<std::string> names;
  std::error_code ignored;  // what cannot be read cannot be used either
  fs::directory_iterator entry(LocalStore(run, "x").root().parent_path(), ignored);
  for (; entry != fs::directory_iterator(); entry.increment(ignored))
    if (entry->is_directory(ignored)) names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  std::vector<LocalStore> stores;
  for (const std::string& name : names) stores.emplace_back(run, name);
  return stores;
}

LocalRun read_local_run(const fs::path& run_dir, std::string& note) {
  const fs::path file = run_dir / kWhereName;
  if (!fs::exists(file)) return {};
  const json read = read_object(file);
  check_format(read, kRunFormat, file);
  const LocalRun run{text_of(read, "run", file), text_of(read, "run_dir", file), text_of(read, "local_dir", file)};
  ATHANOR_CHECK_CHECKPOINT(is_id(run.id), "{}: \"{}\" is no id of a run", file.string(), run.id);
  if (run.run_dir == run_dir) return run;
  note = fmt::format("{} is of the run in {}: its local checkpoints are not used here", file.string(),
                     run.run_dir.string());
  return {};
}

std::string new_local_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

void write_local_run(const LocalRun& run, int64_t attempt, const std::vector<LocalNode>& nodes) {
  ordered_json list = ordered_json::array();
  for (const auto& [name, host, partner, ranks] : nodes)
    list.push_back({{"node", name},
                    {"host", host},
                    {"ranks", ranks},
                    {"partner", partner.empty() ? ordered_json() : ordered_json(partner)}});
  const ordered_json where = {{"format", kRunFormat},
                              {"version", kVersion},
                              {"run", run.id},
                              {"run_dir", run.run_dir.string()},
                              {"local_dir", run.local_dir.string()},
                              {"attempt", attempt},
                              {"nodes", list}};
  write_file_atomically(run.run_dir / kWhereName, where.dump(1) + "\n");
}

}  // namespace athanor::inline checkpoint
