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

}  // namespace athanor::inline watch
