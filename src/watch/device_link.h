#pragma once
// The speed of messages between the devices of neighbouring ranks, over the library that a step uses (NCCL, XCCL).

#include "parallel/mesh.h"

namespace athanor::inline watch {

/// Returns the group in which devices measure their links, the same kind on all ranks: the larger one of kData and
/// kModel. Every step sums over both, so that the measurement opens no communicator that a run would not open, and of
/// the two it is the one that reaches more ranks. A library opens a connection to a neighbour with the first message,
/// and keeps its buffers.
GroupKind device_link_group(const Mesh& mesh);

/// Measures what this rank's device sends to that of the next rank of that group (after the last comes the first) while
/// it receives as much from it: MB/s in each direction, of 16 MiB. NaN on a CPU, for a group of one rank, and if the
/// device's library compares no times. The host waits once. Collective over the world.
double measure_device_link(const Mesh& mesh, at::Device device);

// How the ranks of a group take turns, so that each measures its messages to the next one and is in one pair at a time.

/// Pairs whose first rank is even go first, then those in which it is odd, then the one that is left of an odd number
/// of ranks.
inline constexpr int kNumWaves = 3;

/// The other rank of this rank's pair in a wave, and whether this rank is the first of the two; with −1: it has none.
struct Neighbour {
  int with = -1;
  bool begins = false;
};

/// @param size  of the group; after its last rank comes its first one. A rank alone has no pair, and two ranks have one
///              pair twice: each is first once.
inline Neighbour neighbour_in(int wave, int rank, int size) {
  if (size < 2) return {};
  const auto wave_of = [&](int first) { return first == size - 1 && size % 2 == 1 ? 2 : first % 2; };
  const int before = (rank + size - 1) % size;
  if (wave_of(rank) == wave) return {(rank + 1) % size, true};
  if (wave_of(before) == wave) return {before, false};
  return {};
}

}  // namespace athanor::inline watch
