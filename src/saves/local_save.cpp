#include "saves/local_save.h"

#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "saves/file_messages.h"

namespace athanor::inline saves {
namespace {

// The names of the files of one writer: those with pieces, then the part of the manifest that lists them.
std::vector<std::string> write_own(const LocalPlace& place, int64_t step, const std::vector<PieceView>& pieces,
                                   Manifest manifest, int rank, const WriteOptions& options) {
  const auto folder = place.store.staging(place.attempt, step);
  write_pieces(folder, prefix_of_writer(rank), pieces, manifest, options);
  write_file_atomically(folder / part_name(rank), manifest_text(manifest));
  std::vector<std::string> names;
  for (const auto& [name, size] : manifest.files) names.push_back(name);
  names.push_back(part_name(rank));
  return names;
}

void copy_to_partner(const LocalPlace& place, int64_t step, std::vector<std::string> own, comm::Communicator& group,
                     const std::function<void(comm::Pending& pending)>& wait, const WriteOptions& options) {
  const int rank = group.rank(), partner = place.nodes.partner_rank(rank);
  if (partner < 0) return;
  const auto folder = place.store.staging(place.attempt, step);
  std::vector<IncomingFiles> in;
  for (const int source : place.nodes.sources_of(rank)) in.push_back({source, folder});
  exchange_files(group, OutgoingFiles{partner, folder, std::move(own)}, in, wait, options.worked);
}

// What the node of this rank has of a checkpoint.
std::pair<LocalPart, PartPlaces> describe(const LocalPlace& place, int64_t step, int rank, int writers) {
  const RankNodes& nodes = place.nodes;
  const int node = nodes.node_of(rank), partner = nodes.partner_of(node);
  LocalPart part{step, place.attempt, writers};
  PartPlaces places;
  if (partner >= 0) places.partner = nodes.name_of(partner);
  std::vector<int> sources = {node};
  if (partner >= 0) sources.push_back((node + nodes.size() - 1) % nodes.size());
  for (const int source : sources) {
    places.sources.push_back({nodes.name_of(source), nodes.ranks_of(source)});
    part.kept.insert(part.kept.end(), nodes.ranks_of(source).begin(), nodes.ranks_of(source).end());
  }
  return {part, places};
}

}  // namespace

void write_local_checkpoint(const LocalPlace& place, int64_t step, const std::vector<PieceView>& pieces,
                            const nlohmann::json& model, const nlohmann::json& state, const Team& team,
                            comm::Communicator& group, const std::function<void(comm::Pending& pending)>& wait,
                            const WriteOptions& options) {
  const bool is_leader = place.nodes.is_leader(team.index);
  const auto on_leaders = [&](const std::function<void()>& act) {
    team.on_all([&] {
      if (is_leader) act();
    });
  };
  try {
    on_leaders([&] { place.store.begin(place.attempt, step); });
    std::vector<std::string> own;
    team.on_all([&] {
      Manifest manifest;
      if (team.is_first()) manifest.model = model;
      if (team.is_first()) manifest.state = state;
      own = write_own(place, step, pieces, std::move(manifest), team.index, options);
    });
    team.on_all([&] { copy_to_partner(place, step, std::move(own), group, wait, options); });
    on_leaders([&] {
      const auto [part, places] = describe(place, step, team.index, team.size);
      place.store.commit(part, places);
    });
  } catch (const Error&) {
    if (is_leader) place.store.discard(place.attempt, step);
    throw;
  }
  if (is_leader) place.store.keep_only(place.attempt, step);
}

}  // namespace athanor::inline saves
