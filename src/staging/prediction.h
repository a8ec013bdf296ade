#pragma once
// How long it takes to send bytes to all nodes, by a formula of the source, the links, the latency of a hop and the
// disks. docs/yeet.md derives it; the tests compare it with the relay on computed networks.

#include <cstdint>
#include <span>

namespace athanor::staging {

struct PredictionInput {
  double bytes = 0;  ///< that are sent
  double chunk_bytes = 1 << 20;
  double source_bytes_per_s = 0;  ///< that one node reads; 0: no limit
  double link_bytes_per_s = 0;    ///< each node has it in each direction
  double disk_bytes_per_s = 0;    ///< that a node writes; 0: no limit
  double latency_s = 0;           ///< each hop has it
};

/// It holds for a latency up to the time in which a link sends a chunk: a longer one needs more buffers than a node
/// has.
double predict_s(const PredictionInput& input, int num_nodes);
/// The same if each node sends to one other (a chain), for comparison.
double predict_chain_s(const PredictionInput& input, int num_nodes);

/// What was published for a broadcast of a Python environment as an archive: AuroraGPT, "The good, the bad and the
/// restarts" (slides of 2026), "ezpz yeet: Efficiently Running 50k Python Processes". The size of the archive is not
/// given there.
struct PublishedBroadcast {
  int num_nodes;
  double broadcast_s, first_step_s;
};
std::span<const PublishedBroadcast> published_broadcasts();

}  // namespace athanor::staging
