#pragma once
// Names the rank for which a step on devices waits too long.
//
// The host queues a step and then waits for its device, whose collectives wait for the devices of other ranks; these
// wait for their hosts to queue the same step. So the hosts tell each other that they have come so far, by a small sum
// over the world, for which no rank waits in an ordinary step. If a wait takes longer, the sum shows who has not come.

#include "comm/communicator.h"
#include "ops/transfer.h"
#include "parallel/mesh.h"

namespace athanor::inline watch {

class DeviceWatch {
 public:
  /// Watches the waits of this thread for `device`, which communicates over the groups of `mesh`.
  /// @param timeout_s  parallelism.collective_timeout_s
  DeviceWatch(const Mesh& mesh, at::Device device, double timeout_s);

  /// To be called when the step's work has been queued, before the wait for its numbers. Collective over the world;
  /// does not wait for the step of this call.
  void step_is_queued();

 private:
  void look(double seconds);
  std::string oldest_incomplete() const;

  const Mesh& mesh_;
  at::Device device_;
  double timeout_s_;
  at::Tensor word_;
  comm::Pending all_have_queued_;
  ops::WaitWatch watch_;
};

}  // namespace athanor::inline watch
