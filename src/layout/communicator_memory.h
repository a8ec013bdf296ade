#pragma once
// The memory of a rank's device that the library of its collectives takes: the buffers of NCCL. They are not
// libtorch's, so that the memory of tensors does not contain them.
//
// NCCL joins two ranks by connections, one for each of the channels that it uses between them. The receiver of a
// connection has a buffer for each protocol: 512 KiB (LL), 4800 KiB (LL128) and 4 MiB (Simple; NCCL_BUFFSIZE), together
// rounded up to 10 MiB (multiples of 2 MiB); the sender has 2 MiB. So a rank that is both, in one channel with one
// peer, has 12 MiB. A communicator has these connections:
//
//   collectives  For each channel one of the ring, and in groups of three or more one more of the tree. There are 24
//                channels between GPUs of a host, and 16 in groups of several hosts.
//   all-to-all,  To each peer separate ones, all at its first message and whatever its size: 32 channels within a host,
//   messages     and 2 to each peer of the host in groups of several hosts. What goes to other hosts shares two
//                buffers, one for each direction: 16 chunks of 128 KiB for each of 16 channels, which is 32 MiB.
//
// Sizes and rules are those of NCCL 2.28 to 2.30 (github.com/NVIDIA/nccl: computeBuffSizes in src/init.cc, p2pSendSetup
// and p2pRecvSetup in src/transport/p2p.cc, sharedNetBuffersInit in src/transport/net.cc, p2pTaskAppend in
// src/enqueue.cc). The numbers of channels depend on the machine; these are of hosts with eight H100 joined by NVLink,
// and without NVLink there are fewer. Its issue 1685 reports 3.3 GB for the first all-to-all there; this counts 2.8 GB.
// NCCL_MAX_NCHANNELS, NCCL_MAX_P2P_NCHANNELS and NCCL_BUFFSIZE lower the count as they lower NCCL's memory. XCCL's
// buffers are counted as if they were NCCL's.

#include <vector>

#include "layout/traffic.h"

namespace athanor::inline layout {

/// The communicators of one group of a rank that a run makes, and their bytes on the rank's device.
struct OpenedGroup {
  GroupKind group;
  int ranks = 1;
  int communicators = 1;  ///< messages of pipelines have one for each direction (comm/communicator.h, Lane)
  double bytes = 0;
};

/// Returns the groups that the steps of a run on devices use, each of which makes its communicators at its first call
/// (comm/device_backend.h).
/// @param sent   what the rank sends in a step on devices.
/// @param hosts  the host of each rank of the world, as a number; empty: all are on one.
std::vector<OpenedGroup> opened_groups(const Layout& layout, int rank, const std::vector<RankTraffic>& sent,
                                       const std::vector<int>& hosts = {});

/// Returns the hosts of a job that is only planned: topology.ranks_per_node consecutive ranks each, or one for all.
std::vector<int> planned_hosts(const TopologyConfig& topology, int world_size);

}  // namespace athanor::inline layout
