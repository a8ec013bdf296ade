#include "train/local_resume.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "checkpoint/verified_load.h"
#include "layout/memory.h"
#include "train/checkpointing.h"
#include "train/file_messages.h"
#include "train/place_in_run.h"
#include "train/state_pieces.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// ---- Looking

std::string text_of(const LocalRun& run) {
  return json{{"id", run.id}, {"run_dir", run.run_dir.string()}, {"local_dir", run.local_dir.string()}}.dump();
}

LocalRun run_of_text(const std::string& text) {
  const json read = json::parse(text);
  return {read.at("id"), read.at("run_dir").get<std::string>(), read.at("local_dir").get<std::string>()};
}

// Returns every rank's text on the first one.
std::vector<std::string> gather(const Team& team, const std::string& own) {
  return team.size > 1 ? team.gather(own) : std::vector<std::string>{own};
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

std::string list_as_text(const LocalStore& store) {
  json parts = json::array();
  std::vector<std::string> notes;
  for (const auto& [step, attempt, writers, kept] : store.list(notes))
    parts.push_back({{"step", step}, {"attempt", attempt}, {"writers", writers}, {"kept", kept}});
  return json{{"parts", parts}, {"notes", notes}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<LocalChoice> choose(const RankNodes& nodes, const std::vector<std::string>& lists,
                                  const Beginning& begin) {
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
  auto choice = choose_local(parts, begin.step, begin.branch, notes);
  for (const std::string& note : notes) log::warn("{}", note);
  if (choice || begin.from != Beginning::From::kNewest) return choice;
  std::vector<std::string> of_older;  // for the case that the newest one in the run's folder is damaged
  return choose_local(parts, -1, begin.branch, of_older);
}

std::optional<LocalChoice> agree_on_choice(const LocalStart& local, const Beginning& begin, const Team& team) {
  const bool lists = local.nodes.is_leader(team.index);
  const auto all = gather(team, lists ? list_as_text(*local.found) : "");
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

void check_place(const RunConfig& config, const LocalStore& store, const RankNodes& nodes, int node) {
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
  needed *= static_cast<double>(local_copies(nodes));
  const auto free = static_cast<double>(free_disk_bytes(existing)) + static_cast<double>(store.num_bytes());
  ATHANOR_CHECK(needed <= free,
                "checkpoint.local_dir ({}) has {} free on node {}, and the local checkpoints of its {} ranks need {} "
                "({} times their pieces); name another folder, or set checkpoint.local_interval to 0",
                folder.string(), format_bytes(free), store.node(), nodes.ranks_of(node).size(), format_bytes(needed),
                local_copies(nodes));
}

// ---- Loading

fs::path folder_of_choice(const LocalStart& local) {
  return local.found->path(local.choice->attempt, local.choice->step);
}

// The parts that this rank's node has of the writers in `wanted`, as the holder of this number; those that cannot be
// read are left out.
std::string read_parts(const LocalStart& local, int node, const std::vector<int>& wanted, size_t number) {
  json parts = json::array();
  for (const int writer : wanted) {
    const auto& holders = local.choice->holders[static_cast<size_t>(writer)];
    if (number >= holders.size() || holders[number] != node) continue;
    const fs::path file = folder_of_choice(local) / part_name(writer);
    try {
      ATHANOR_CHECK_CHECKPOINT(fs::is_regular_file(file), "{} is no file", file.string());
      parts.push_back({writer, read_file(file)});
    } catch (const Error& error) {
      log::warn("{}", error.what());
    }
  }
  return parts.dump(-1, ' ', false, json::error_handler_t::replace);
}

// On the first rank: adds what is in order of the parts in `texts`, and takes their writers from `wanted`.
void add_parts(const std::vector<std::string>& texts, std::map<int, Manifest>& parts, std::vector<int>& wanted) {
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    for (const json& each : json::parse(text)) {
      const int writer = each.at(0);
      try {
        parts.emplace(writer, parse_manifest_part(each.at(1).get<std::string>(), part_name(writer)));
        std::erase(wanted, writer);
      } catch (const Error& error) {
        log::warn("{}", error.what());
      }
    }
  }
}

std::string join_parts(std::map<int, Manifest> parts) {
  ATHANOR_CHECK_CHECKPOINT(!parts.empty(), "a local checkpoint without pieces");
  auto part = parts.begin();
  Manifest whole = std::move(part->second);  // that of the first writer has the model and the state
  for (++part; part != parts.end(); ++part) join_manifests(whole, std::move(part->second));
  return manifest_text(whole);
}

// Returns the manifest of the whole checkpoint: each part comes from the first of its holders where it is in order.
std::string agree_on_manifest(const LocalStart& local, const Team& team) {
  const bool is_leader = local.nodes.is_leader(team.index);
  std::vector<int> wanted(local.choice->holders.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  std::map<int, Manifest> parts;  // on the first rank
  for (size_t number = 0; !wanted.empty(); ++number) {
    std::string own;
    team.on_all([&] {
      if (is_leader) own = read_parts(local, local.nodes.node_of(team.index), wanted, number);
    });
    const auto texts = gather(team, own);
    wanted = json::parse(team.from_first([&] {
               add_parts(texts, parts, wanted);
               const bool more = std::ranges::any_of(wanted, [&](int writer) {
                 return local.choice->holders[static_cast<size_t>(writer)].size() > number + 1;
               });
               ATHANOR_CHECK_CHECKPOINT(more || wanted.empty(), "{}: {} is nowhere in order",
                                        folder_of_choice(local).string(), part_name(wanted.front()));
               return json(wanted).dump();
             })).get<std::vector<int>>();
  }
  return team.from_first([&] { return join_parts(std::move(parts)); });
}

// Writes the manifest of the whole checkpoint on each node. Collective.
void gather_manifest(const LocalStart& local, const Team& team) {
  const std::string manifest = agree_on_manifest(local, team);
  team.on_all([&] {
    if (!local.nodes.is_leader(team.index)) return;
    fs::create_directories(folder_of_choice(local));
    write_file_atomically(folder_of_choice(local) / kManifestName, manifest);
  });
}

std::vector<FileMove> agree_on_moves(const LocalStart& local, const std::vector<std::string>& missing,
                                     const Team& team) {
  const auto all = gather(team, missing.empty() ? "" : json(missing).dump());
  return moves_of_text(team.from_first([&] {
    std::vector<std::vector<std::string>> needed(static_cast<size_t>(local.nodes.size()));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].empty()) continue;
      auto& of_node = needed[static_cast<size_t>(local.nodes.node_of(static_cast<int>(rank)))];
      for (const json& file : json::parse(all[rank])) of_node.push_back(file);
    }
    return text_of_moves(plan_moves(*local.choice, needed));
  }));
}

// Makes the moves of one distance between nodes in which this rank's node takes part, as its leader.
void make_moves(const LocalStart& local, const std::vector<FileMove>& moves, const Team& team,
                comm::Communicator& world) {
  const int node = local.nodes.node_of(team.index), size = local.nodes.size();
  const fs::path folder = folder_of_choice(local);
  std::exception_ptr failure;
  for (auto move = moves.begin(); move != moves.end();) {
    const auto distance = [size](const FileMove& each) { return (each.to - each.from + size) % size; };
    std::optional<OutgoingFiles> out;
    std::vector<IncomingFiles> in;
    const int now = distance(*move);
    for (; move != moves.end() && distance(*move) == now; ++move) {
      if (move->from == node) out = OutgoingFiles{local.nodes.leader_of(move->to), folder, move->files};
      if (move->to == node) in.push_back({local.nodes.leader_of(move->from), folder});
    }
    if (!out && in.empty()) continue;
    try {
      exchange_files(world, out, in, wait_for_pending, team.worked);
    } catch (const CommError&) {
      throw;
    } catch (const Error&) {
      failure = std::current_exception();  // other nodes wait for the moves that follow
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void tell_moves(const LocalStart& local, const std::vector<FileMove>& moves, const Manifest& manifest) {
  if (moves.empty()) return;
  double bytes = 0;
  size_t files = 0;
  std::vector<std::string> nodes;
  for (const FileMove& move : moves) {
    nodes.push_back(local.nodes.name_of(move.to));
    files += move.files.size();
    for (const std::string& file : move.files) bytes += static_cast<double>(manifest.files.at(file));
  }
  std::ranges::sort(nodes);
  const auto same = std::ranges::unique(nodes);
  nodes.erase(same.begin(), same.end());
  log::info("{} file(s), {}, of the local checkpoint came from other nodes to {}", files, format_bytes(bytes),
            join_first(nodes, 4, ", "));
}

// Gives each node the files that its ranks need. Collective.
void fetch_files(const LocalStart& local, const CheckpointReader& checkpoint, const std::set<std::string>& files,
                 const Team& team, comm::Communicator& world) {
  std::vector<std::string> missing;
  team.on_all([&] {
    for (const std::string& file : files)
      if (!fs::exists(checkpoint.folder() / file)) missing.push_back(file);
  });
  const auto moves = agree_on_moves(local, missing, team);
  team.on_all([&] {
    if (local.nodes.is_leader(team.index)) make_moves(local, moves, team, world);
  });
  if (team.is_first()) tell_moves(local, moves, checkpoint.manifest());
}

}  // namespace

int64_t local_copies(const RankNodes& nodes) { return nodes.size() == 1 ? 2 : 4; }

LocalStart look_for_local(const RunConfig& config, const Beginning& begin, const Mesh& mesh) {
  const Team team = team_of(mesh);
  LocalStart local{RankNodes(mesh.world().hosts(), static_cast<int>(config.topology.ranks_per_node))};
  const int node = local.nodes.node_of(team.index);
  LocalRun run = agree_on_run(config, team);
  if (!run.local_dir.empty() && begin.branch < begin.attempt) {
    local.found.emplace(run, local.nodes.name_of(node));
    local.choice = agree_on_choice(local, begin, team);
  }
  if (config.checkpoint.local_interval == 0) return local;
  run.local_dir = as_named(config.checkpoint.local_dir);
  local.place.emplace(run, local.nodes.name_of(node));
  team.on_all([&] {
    if (local.nodes.is_leader(team.index)) check_place(config, *local.place, local.nodes, node);
  });
  return local;
}

std::optional<fs::path> load_local(TrainState& state, const LocalStart& local) {
  const Team team = team_of(state.model.mesh);
  const fs::path folder = folder_of_choice(local);
  std::optional<CheckpointReader> checkpoint;
  const auto open = [&] {
    gather_manifest(local, team);
    team.on_all([&] { checkpoint = CheckpointReader::open(folder, team.worked); });
  };
  const auto fetch = [&](const std::set<std::string>& files) {
    fetch_files(local, *checkpoint, files, team, state.model.mesh.group(GroupKind::kWorld));
  };
  const bool loaded = passes(open, team) && load_from_nodes(state, *checkpoint, fetch);
  team.on_all([] {});  // no rank reads there any more
  if (local.nodes.is_leader(team.index)) local.found->drop_fetched(local.choice->attempt, local.choice->step);
  if (!loaded) return std::nullopt;
  return folder;
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

}  // namespace athanor
