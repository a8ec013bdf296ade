#include "checkpoint/verified_load.h"

#include <nlohmann/json.hpp>

#include "base/console.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/rotation.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

uint64_t bytes_to_read(const LoadPlan& plan, const std::vector<bool>& hashed, const std::vector<Piece>& pieces) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (hashed[i]) bytes += pieces[i].num_bytes();
  for (const auto& use : plan.uses)
    if (!hashed[use.piece]) bytes += static_cast<uint64_t>(use.end - use.first) * sizeof(float);
  return bytes;
}

std::string text_of(const std::optional<NotFinite>& found) {
  if (!found) return "";
  return json{
      {"tensor", found->tensor}, {"position", found->position}, {"index", found->index}, {"value", found->value}}
      .dump();
}

std::optional<NotFinite> parse(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const json found = json::parse(text);
  return NotFinite{found.at("tensor"), found.at("position"), found.at("index"), found.at("value")};
}

// The first member looks: folders of a network file system may look different to members at one moment.
std::vector<std::string> agree_on_names(const fs::path& folder, const Team& team) {
  return json::parse(team.from_first([&] {
    json names = json::array();
    for (const auto& each : list_recoverable(folder)) names.push_back(each.path.filename().string());
    return names.dump();
  }));
}

// Opens a checkpoint, or returns why none may be taken in its place.
std::string open_unless_newer(const fs::path& path, const Team& team, std::optional<CheckpointReader>& reader) {
  try {
    reader = CheckpointReader::open(path, team.worked);
    return "";
  } catch (const NewerFormatError& error) {
    return error.what();
  }
}

// This member's reading of what it planned.
std::optional<NotFinite> read_planned(const CheckpointReader& checkpoint, const std::vector<TargetView>& targets,
                                      const LoadPlan& plan, const std::vector<bool>& hashed, const FileShare& files,
                                      const Team& team, FileDamage* damage = nullptr) {
  std::optional<ProgressBar> progress;
  if (team.is_first())
    progress.emplace("loading " + checkpoint.folder().filename().string(),
                     bytes_to_read(plan, hashed, checkpoint.manifest().pieces), "B", kLongWork_s);
  return checkpoint.load_verified(targets, plan, hashed, files, progress ? &*progress : nullptr, damage);
}

std::string describe(const PutAside& found) {
  return fmt::format("{} is not finite although its hashes are right: {}", found.path.string(), found.first.text());
}

}  // namespace

bool passes(const std::function<void()>& read, const Team& team, std::optional<IoError>* unread) {
  try {
    read();
    return true;
  } catch (const CommError&) {
    throw;  // this is no evidence about the checkpoint
  } catch (const Error& error) {
    if (team.is_first()) log::warn("passing over a checkpoint: {}", error.what());
    if (const auto* io = dynamic_cast<const IoError*>(&error); io && unread) *unread = *io;
    return false;
  }
}

std::optional<NotFinite> agree_on_first(const std::optional<NotFinite>& own, const Team& team) {
  if (team.size == 1) return own;
  std::optional<NotFinite> first;
  for (const std::string& each : team.gather(text_of(own))) {
    auto found = parse(each);
    if (found && (!first || found->before(*first))) first = std::move(found);
  }
  return parse(team.broadcast(text_of(first)));
}

std::optional<NotFinite> load_verified(const CheckpointReader& checkpoint, const std::vector<TargetView>& targets,
                                       const Team& team) {
  const auto& pieces = checkpoint.manifest().pieces;
  LoadPlan plan;
  std::vector<int64_t> claims;
  std::string of_first = std::to_string(pieces.size());
  if (team.size > 1) of_first = team.broadcast(of_first);
  team.on_all([&] {
    ATHANOR_CHECK_CHECKPOINT(of_first == std::to_string(pieces.size()),
                             "{}: the first rank sees {} pieces there and this one {}: their views of the file system "
                             "differ; start again",
                             checkpoint.folder().string(), of_first, pieces.size());
    plan = checkpoint.plan(targets);
    claims = claims_of(plan, pieces, team.index, team.size);
  });
  if (team.size > 1 && !claims.empty()) team.max(claims);
  std::optional<NotFinite> own;
  team.on_all([&] {
    const auto hashed = pieces_to_hash(claims, pieces, team.index, team.size);
    own = read_planned(checkpoint, targets, plan, hashed, {team.index, team.size}, team);
  });
  return agree_on_first(own, team);
}

std::optional<NotFinite> load_needed(const CheckpointReader& checkpoint, const std::vector<TargetView>& targets,
                                     const Team& team, FileDamage& damage) {
  damage.clear();
  std::optional<NotFinite> own;
  team.on_all([&] {
    const LoadPlan plan = checkpoint.plan(targets);
    std::vector<bool> hashed(checkpoint.manifest().pieces.size());
    for (const auto& use : plan.uses) hashed[use.piece] = true;
    own = read_planned(checkpoint, targets, plan, hashed, {0, 0}, team, &damage);
    ATHANOR_CHECK_CHECKPOINT(damage.empty(), "{}", damage.begin()->second);
  });
  return agree_on_first(own, team);
}

std::optional<CheckpointReader> open_unless_damaged(const fs::path& path, const std::string& remedy, const Team& team,
                                                    std::optional<IoError>* unread) {
  std::optional<CheckpointReader> reader;
  std::string newer_format;
  const auto open = [&] { team.on_all([&] { newer_format = open_unless_newer(path, team, reader); }); };
  const bool opens = passes(open, team, unread);
  team.on_all([&] { ATHANOR_CHECK_CHECKPOINT(newer_format.empty(), "{}, or {}", newer_format, remedy); });
  if (!opens) reader.reset();
  return reader;
}

std::optional<LoadedNewest> load_newest(const fs::path& folder, const ChooseTargets& choose, const Team& team) {
  std::optional<PutAside> not_finite;
  std::optional<IoError> unread;
  for (const std::string& name : agree_on_names(folder, team)) {
    const fs::path path = folder / name;
    auto reader = open_unless_damaged(
        path, "set checkpoint.resume to an older checkpoint, from which the run then continues", team, &unread);
    if (!reader) continue;
    std::vector<TargetView> targets;
    team.on_all([&] {
      targets = choose(*reader);
      reader->check_fits(targets);
    });
    std::optional<NotFinite> first;
    const auto load = [&] { first = load_verified(*reader, targets, team); };
    if (!passes(load, team, &unread)) continue;
    if (!first) return LoadedNewest{std::move(*reader), std::move(not_finite)};
    const PutAside found{path, *first};
    ATHANOR_CHECK_CHECKPOINT(!not_finite,
                             "{}; {}: two checkpoints that follow each other point to the run, not to one file; set "
                             "checkpoint.resume to an older checkpoint or model that is in order",
                             describe(*not_finite), describe(found));
    if (team.is_first()) log::warn("passing over a checkpoint: {}", describe(found));
    not_finite = found;
  }
  if (unread) throw *unread;
  ATHANOR_CHECK_CHECKPOINT(!not_finite,
                           "{}; there is no older checkpoint that verifies: set checkpoint.resume to a checkpoint or "
                           "model that is in order",
                           describe(*not_finite));
  return std::nullopt;
}

}  // namespace athanor::inline checkpoint
