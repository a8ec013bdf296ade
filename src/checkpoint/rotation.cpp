#include "checkpoint/rotation.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "checkpoint/verified_load.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kNotFinitePrefix = "not-finite-";
constexpr size_t kMaxStepDigits = 18;
constexpr int64_t kMaxStep = 1'000'000'000'000'000'000;
constexpr std::string_view kReplacedSuffix = ".replaced";  // as in base/file_moves.h
constexpr uint64_t kOverheadBytes = 1 << 20;               // headers and manifest of a small checkpoint
constexpr uint64_t kOverheadPerPiece = 1024;               // in header and manifest, long names included

bool is_replaced(const std::string& name) { return matches_wildcard(".step-*.replaced", name); }

std::string name_before_replacing(const std::string& name) {
  return name.substr(1, name.size() - 1 - kReplacedSuffix.size());
}

void remove_folder(const fs::path& path) {
  if (const auto why = try_remove_tree(path); !why.empty()) log::warn("{}", why);
}

void remove_checkpoint(const fs::path& path) {
  const auto hidden = hide_checkpoint(path);
  fault_point("checkpoint.remove");
  for (const auto& entry : fs::directory_iterator(hidden)) {
    remove_folder(entry.path());
    fault_point("checkpoint.remove");
  }
  remove_folder(hidden);
}

bool verifies(const fs::path& path, const Team& team) {
  return passes([&] { open_verified(path, team); }, team);
}

/// Lists checkpoints up to `step`, newest first.
std::vector<StepFolder> list_until(const fs::path& folder, int64_t step) {
  auto all = list_checkpoints(folder);
  std::erase_if(all, [&](const StepFolder& each) { return each.step > step; });
  return all;
}

/// Leaves out the checkpoints that are never removed.
std::vector<StepFolder> without_kept(std::vector<StepFolder> all, int64_t keep_every) {
  if (keep_every > 0) std::erase_if(all, [&](const StepFolder& each) { return each.step % keep_every == 0; });
  return all;
}

/// Returns the newest of several if the disk is short of room and the oldest would have to be removed; "" if not.
fs::path newest_before_removal(const fs::path& folder, int64_t step, uint64_t needed, const RotationOptions& options) {
  if (options.free_bytes(folder) >= needed) return {};
  const auto older = list_until(folder, step), removable = without_kept(older, options.keep_every);
  const bool has_another = !removable.empty() && removable.back().step != older.front().step;
  return has_another && older.size() >= options.keep ? older.front().path : fs::path();
}

/// Collective: all members verify the checkpoint that is to be trusted, since the others wait for it.
void make_room(const fs::path& folder, int64_t step, uint64_t needed, const RotationOptions& options) {
  const Team& team = options.team;
  const fs::path newest =
      team.from_first([&] { return newest_before_removal(folder, step, needed, options).string(); });
  const bool trusted = !newest.empty() && verifies(newest, team);
  team.on_first([&] {
    if (trusted) {
      const auto oldest = without_kept(list_until(folder, step), options.keep_every).back().path;
      log::warn("the disk has no room for another checkpoint ({} needed): removing {} first", format_bytes(needed),
                oldest.filename().string());
      remove_checkpoint(oldest);
    }
    const uint64_t free = options.free_bytes(folder);
    if (free < needed) {
      throw IoError(fmt::format("cannot write checkpoint {}: {} needed, {} free on its disk", step_folder_name(step),
                                format_bytes(static_cast<double>(needed)), format_bytes(static_cast<double>(free))),
                    ENOSPC);
    }
  });
}

/// Removes all but the newest `keep` and those that are never removed. The new checkpoint is complete even if an old
/// one cannot be removed, so no failure here is a failure of the save.
void remove_older(const fs::path& folder, int64_t step, const RotationOptions& options) {
  fs::path at = folder;
  try {
    auto older = list_until(folder, step);
    older.erase(older.begin(),
                older.begin() + static_cast<ptrdiff_t>(std::min(older.size(), std::max<size_t>(1, options.keep))));
    for (const StepFolder& each : without_kept(std::move(older), options.keep_every)) {
      at = each.path;
      remove_checkpoint(at);
    }
  } catch (const std::exception& error) {
    log::warn("{}: old checkpoints are still there and take their room: {}; remove them by hand", at.string(),
              error.what());
  }
}

}  // namespace

std::optional<int64_t> step_of_folder_name(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  if (name.size() < 8 || name.size() > kMaxStepDigits) return std::nullopt;
  int64_t step = 0;
  for (const char digit : name) {
    if (digit < '0' || digit > '9') return std::nullopt;
    step = step * 10 + (digit - '0');
  }
  return step;
}

std::string step_folder_name(int64_t step) {
  ATHANOR_ASSERT(step >= 0 && step < kMaxStep);  // a longer name would not be found again
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::vector<StepFolder> list_checkpoints(const fs::path& folder) {
  std::vector<StepFolder> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto step = step_of_folder_name(entry.path().filename().string());
    if (step && entry.is_directory()) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

std::vector<StepFolder> list_recoverable(const fs::path& folder) {
  auto found = list_checkpoints(folder);
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (!is_replaced(name)) continue;
    name = name_before_replacing(name);
    const auto step = step_of_folder_name(name);
    if (step && entry.is_directory() && !fs::exists(folder / name)) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

void clean_leftovers(const fs::path& folder) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  for (const auto& path : entries) {
    const auto name = path.filename().string();
    if (name.starts_with('.') && matches_wildcard("*.step-*.tmp", name)) {
      log::info("removing {}, which a killed process left", path.string());
      remove_folder(path);
    } else if (is_replaced(name)) {
      const auto original = folder / name_before_replacing(name);
      if (fs::exists(original)) {
        remove_folder(path);
      } else {
        log::info("putting {} back, whose successor was never finished", original.string());
        rename_path(path, original);
      }
    }
  }
}

fs::path hide_checkpoint(const fs::path& path) {
  const auto hidden = temporary_name(path);
  remove_folder(hidden);
  if (const int injected = fault_errno("checkpoint.hide"))
    throw IoError("cannot rename " + path.string() + ": " + std::strerror(injected), injected);
  rename_synced(path, hidden);
  return hidden;
}

fs::path put_aside(const fs::path& checkpoint, const NotFinite& first) {
  const std::string listed = checkpoint.filename().string();
  const fs::path folder = checkpoint.parent_path();
  const std::string name = is_replaced(listed) ? name_before_replacing(listed) : listed;
  fs::path aside = folder / fmt::format("{}{}", kNotFinitePrefix, name);
  for (int number = 2; fs::symlink_status(aside).type() != fs::file_type::not_found; ++number)
    aside = folder / fmt::format("{}{}-{}", kNotFinitePrefix, number, name);
  const nlohmann::ordered_json reason = {
      {"tensor", first.tensor}, {"element", first.index}, {"value", first.value}, {"time", unix_time_s()}};
  write_file_atomically(folder / name / "not-finite.json", reason.dump(2) + "\n");
  rename_path(folder / name, aside);
  return aside;
}

CheckpointReader open_verified(const fs::path& path, const Team& team) {
  std::optional<CheckpointReader> reader;
  team.on_all([&] {
    reader = CheckpointReader::open(path, team.worked);
    reader->verify(team.index, team.size);
  });
  return std::move(*reader);
}

std::optional<CheckpointReader> open_newest_verified(const fs::path& folder, const Team& team) {
  // The first member looks: folders of a network file system may look different to members at one moment.
  std::istringstream names(team.from_first([&] {
    std::string found;
    for (const auto& each : list_recoverable(folder)) found += each.path.filename().string() + "\n";
    return found;
  }));
  std::optional<IoError> unread;
  for (std::string name; names >> name;) {
    auto reader = open_unless_damaged(folder / name, "name an older checkpoint of " + folder.string(), team, &unread);
    const auto verify = [&] { team.on_all([&] { reader->verify(team.index, team.size); }); };
    if (reader && passes(verify, team, &unread)) return reader;
  }
  if (unread) throw *unread;
  return std::nullopt;
}

void save_rotating(const fs::path& folder, int64_t step, const std::vector<PieceView>& pieces,
                   const nlohmann::json& model, const nlohmann::json& state, const RotationOptions& options) {
  const Team& team = options.team;
  uint64_t needed = total_bytes(pieces) + kOverheadBytes + kOverheadPerPiece * pieces.size();
  if (team.size > 1) {
    const auto all = team.gather(std::to_string(needed));
    needed = 0;
    for (const auto& each : all) needed += std::stoull(each);
  }
  make_room(folder, step, needed, options);
  const auto path = folder / step_folder_name(step);
  {
    MovedAside predecessor(path);  // a folder cannot be renamed onto another
    write_checkpoint(
        path, pieces, model, state, options.write, [&] { predecessor.move_now(); }, team);
  }
  team.on_first([&] { remove_older(folder, step, options); });
}

}  // namespace athanor::inline checkpoint
