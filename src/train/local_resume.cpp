#include "train/local_resume.h"

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
#include "train/checkpointing.h"
#include "train/file_messages.h"
#include "train/state_pieces.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

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
    const auto texts = team.texts_on_first(own);
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
  const auto all = team.texts_on_first(missing.empty() ? "" : json(missing).dump());
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

}  // namespace athanor
