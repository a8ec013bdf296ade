#include "saves/local_start.h"

#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "layout/memory.h"
#include "saves/path_in_run.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

std::string text_of(const LocalRun& run) {
  return json{{"id", run.id}, {"run_dir", run.run_dir.string()}, {"local_dir", run.local_dir.string()}}.dump();
}

LocalRun run_of_text(const std::string& text) {
  const json read = json::parse(text);
  return {read.at("id"), read.at("run_dir").get<std::string>(), read.at("local_dir").get<std::string>()};
}

// The run that where.json names; a new one if there is none, with an empty local_dir.
LocalRun agree_on_run(const RunConfig& config, const Team& team) {
  return run_of_text(team.from_first([&] {
    const fs::path run_dir = resolved(config.train.run_dir);
    std::string note;
    LocalRun run;
    try {
      run = read_local_run(run_dir, note);
    } catch (const Error& error) {
      note = fmt::format("{}: the local checkpoints of this run, if there are any, are not used", error.what());
    }
    if (!note.empty()) log::warn("{}", note);
    if (run.id.empty()) run = {new_local_run_id(), run_dir, {}};
    return text_of(run);
  }));
}

// What this rank's node has, its own first.
std::string list_as_text(const LocalStart& local) {
  json parts = json::array();
  std::vector<std::string> notes;
  std::vector<LocalStore> stores = {*local.found};
  stores.insert(stores.end(), local.left.begin(), local.left.end());
  for (const LocalStore& store : stores)
    for (const auto& [step, attempt, writers, kept] : store.list(notes))
      parts.push_back({{"step", step}, {"attempt", attempt}, {"writers", writers}, {"kept", kept}});
  return json{{"parts", parts}, {"notes", notes}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<LocalChoice> choose(const RankNodes& nodes, const std::vector<std::string>& lists,
                                  const ResumePoint& begin) {
  std::vector<std::vector<LocalPart>> parts(static_cast<size_t>(nodes.size()));
  std::vector<std::string> notes;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    if (lists[rank].empty()) continue;
    const json list = json::parse(lists[rank]);
    for (const json& part : list.at("parts"))
      parts[static_cast<size_t>(nodes.node_of(static_cast<int>(rank)))].push_back(
          {part.at("step"), part.at("attempt"), part.at("writers"), part.at("kept")});
    for (const json& note : list.at("notes")) notes.push_back(note);
  }
  auto choice = choose_local(parts, begin.step, begin.branch_of_local(), notes);
  for (const std::string& note : notes) log::warn("{}", note);
  if (choice || begin.from != ResumePoint::From::kNewest) return choice;
  std::vector<std::string> of_older;  // for the case that the newest one in the run's folder is damaged
  return choose_local(parts, -1, begin.branch_of_local(), of_older);
}

std::optional<LocalChoice> agree_on_choice(const LocalStart& local, const ResumePoint& begin, const Team& team) {
  const bool lists = local.nodes.is_leader(team.index);
  const auto all = team.texts_on_first(lists ? list_as_text(local) : "");
  const std::string text = team.from_first([&] {
    const auto choice = choose(local.nodes, all, begin);
    return choice ? choice->to_text() : std::string();
  });
  if (text.empty()) return std::nullopt;
  return LocalChoice::from_text(text);
}

// Links are not followed: they may lead elsewhere on each node.
fs::path as_named(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// The folders of the run on this host that are of no node of the job, on the leader of the host's first node.
std::vector<LocalStore> find_left(const LocalRun& run, const RankNodes& nodes, const comm::World& world) {
  const auto is_here = [&](int node) {
    return world.hosts()[static_cast<size_t>(nodes.leader_of(node))] == world.host();
  };
  int first = 0;
  while (!is_here(first)) ++first;
  if (nodes.leader_of(first) != world.rank()) return {};
  std::set<std::string> names;
  for (int node = 0; node < nodes.size(); ++node) names.insert(nodes.name_of(node));
  auto left = list_stores(run);
  std::erase_if(left, [&](const LocalStore& store) { return names.contains(store.node()); });
  return left;
}

uint64_t bytes_in(const std::vector<LocalStore>& stores, const fs::path& local_dir) {
  uint64_t bytes = 0;
  for (const LocalStore& store : stores)
    if (store.run().local_dir == local_dir) bytes += store.num_bytes();
  return bytes;
}

void check_place(const RunConfig& config, const LocalStart& local, int node) {
  const LocalStore& store = *local.place;
  const RankNodes& nodes = local.nodes;
  const fs::path& folder = store.run().local_dir;
  const fs::path existing = nearest_existing(folder);
  ATHANOR_CHECK(fs::is_directory(existing) && ::access(existing.c_str(), W_OK | X_OK) == 0,
                "checkpoint.local_dir ({}) cannot be used on node {}: {} {}; name a folder that each node can write",
                folder.string(), store.node(), existing.string(),
                fs::is_directory(existing) ? "cannot be written" : "is no folder");
  const Layout layout(config, nodes.num_ranks());
  double needed = 0;
  for (const int rank : nodes.ranks_of(node))
    needed += count_staging_bytes(config, layout, rank, plan_optimizers(config.optimizer));
  needed *= static_cast<double>(local_copies(nodes.size()));
  const auto free = static_cast<double>(free_disk_bytes(existing)) +
                    static_cast<double>(store.num_bytes() + bytes_in(local.left, folder));
  ATHANOR_CHECK(needed <= free,
                "checkpoint.local_dir ({}) has {} free on node {}, and the local checkpoints of its {} ranks need {} "
                "({} times their pieces); name another folder, or set checkpoint.local_interval to 0",
                folder.string(), format_bytes(free), store.node(), nodes.ranks_of(node).size(), format_bytes(needed),
                local_copies(nodes.size()));
}

}  // namespace

LocalStart look_for_local(const RunConfig& config, const ResumePoint& begin, const Mesh& mesh) {
  const Team team = team_of(mesh);
  LocalStart local{RankNodes(mesh.world().hosts(), static_cast<int>(config.topology.ranks_per_node))};
  const int node = local.nodes.node_of(team.index);
  LocalRun run = agree_on_run(config, team);
  if (!run.local_dir.empty()) {
    local.found.emplace(run, local.nodes.name_of(node));
    local.left = find_left(run, local.nodes, mesh.world());
    if (begin.branch_of_local() < begin.attempt) local.choice = agree_on_choice(local, begin, team);
  }
  if (config.checkpoint.local_interval == 0) return local;
  run.local_dir = as_named(config.checkpoint.local_dir);
  local.place.emplace(run, local.nodes.name_of(node));
  team.on_all([&] {
    if (local.nodes.is_leader(team.index)) check_place(config, local, node);
  });
  return local;
}

void record_local(const LocalPlace& place, const comm::World& world) {
  std::vector<LocalNode> nodes;
  for (int node = 0; node < place.nodes.size(); ++node) {
    const auto& ranks = place.nodes.ranks_of(node);
    const int partner = place.nodes.partner_of(node);
    nodes.push_back({place.nodes.name_of(node), world.hosts()[static_cast<size_t>(ranks.front())],
                     partner < 0 ? "" : place.nodes.name_of(partner), ranks});
  }
  write_local_run(place.store.run(), place.attempt, nodes);
}

}  // namespace athanor::inline saves
