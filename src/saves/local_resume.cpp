#include "saves/local_resume.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/reader.h"
#include "checkpoint/verified_load.h"
#include "saves/checkpointing.h"
#include "saves/local_files.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// The parts that this rank's node has of the writers in `wanted`, as the holder of this number; those that cannot be
// read are left out.
std::string read_parts(const LocalChoice& choice, const LocalFiles& files, int node, const std::vector<int>& wanted,
                       size_t number) {
  json parts = json::array();
  for (const int writer : wanted) {
    const auto& holders = choice.holders[static_cast<size_t>(writer)];
    if (number >= holders.size() || holders[number] != node) continue;
    const auto copy =
        static_cast<size_t>(std::count(holders.begin(), holders.begin() + static_cast<ptrdiff_t>(number), node));
    const auto folders = files.folders_with(writer);
    if (copy >= folders.size()) continue;
    const fs::path file = folders[copy] / part_name(writer);
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
std::string agree_on_manifest(const LocalStart& local, const LocalFiles& files, const Team& team) {
  const bool is_leader = local.nodes.is_leader(team.index);
  std::vector<int> wanted(local.choice->holders.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  std::map<int, Manifest> parts;  // on the first rank
  for (size_t number = 0; !wanted.empty(); ++number) {
    std::string own;
    team.on_all([&] {
      if (is_leader) own = read_parts(*local.choice, files, local.nodes.node_of(team.index), wanted, number);
    });
    const auto texts = team.texts_on_first(own);
    wanted = json::parse(team.from_first([&] {
               add_parts(texts, parts, wanted);
               const bool more = std::ranges::any_of(wanted, [&](int writer) {
                 return local.choice->holders[static_cast<size_t>(writer)].size() > number + 1;
               });
               ATHANOR_CHECK_CHECKPOINT(more || wanted.empty(), "{}: {} is nowhere in order", files.folder().string(),
                                        part_name(wanted.front()));
               return json(wanted).dump();
             })).get<std::vector<int>>();
  }
  return team.from_first([&] { return join_parts(std::move(parts)); });
}

// Writes the manifest of the whole checkpoint on each node. Collective.
void gather_manifest(const LocalStart& local, const LocalFiles& files, const Team& team) {
  const std::string manifest = agree_on_manifest(local, files, team);
  team.on_all([&] {
    if (local.nodes.is_leader(team.index)) write_file_atomically(files.folder() / kManifestName, manifest);
  });
}

// A state of another step than its folder's is damage like any other: its name or its lists were changed.
void check_step(const CheckpointReader& checkpoint, int64_t step) {
  const json found = checkpoint.state().is_object() ? checkpoint.state().value("step", json()) : json();
  ATHANOR_CHECK_CHECKPOINT(found == step, "{}: its state is of step {}, and its folder of step {}",
                           checkpoint.folder().string(), found.dump(), step);
}

class SupplyOfNodes : public FileSupply {
 public:
  SupplyOfNodes(LocalFiles& files, const Manifest& manifest) : files_(files), manifest_(manifest) {}
  void fetch(const std::set<std::string>& needed) override { files_.fetch(manifest_, needed); }
  bool replace(const FileDamage& damage) override { return files_.replace(manifest_, damage); }

 private:
  LocalFiles& files_;
  const Manifest& manifest_;
};

}  // namespace

std::optional<fs::path> load_local(TrainState& state, const LocalStart& local) {
  const Team team = team_of(state.model.mesh);
  LocalFiles files(local, team, state.model.mesh.group(GroupKind::kWorld));
  std::optional<CheckpointReader> checkpoint;
  const auto open = [&] {
    files.link_left();
    gather_manifest(local, files, team);
    team.on_all([&] {
      checkpoint = CheckpointReader::open(files.folder(), team.worked);
      check_step(*checkpoint, local.choice->step);
    });
  };
  const auto load = [&] {
    SupplyOfNodes supply(files, checkpoint->manifest());
    return load_from_nodes(state, *checkpoint, supply);
  };
  const bool loaded = passes(open, team) && load();
  team.on_all([] {});  // no rank reads there any more
  if (local.nodes.is_leader(team.index)) local.found->drop_fetched(local.choice->attempt, local.choice->step);
  if (!loaded) return std::nullopt;
  return files.folder();
}

}  // namespace athanor::inline saves
