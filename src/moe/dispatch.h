#pragma once
// Expert parallelism: tokens go to the ranks that own their experts, and come back as sums.
//
// Rank e of a group of E owns experts [e·L, (e+1)·L), L = num_experts / E. Each rank has T tokens of its batch (T
// differs between ranks and may be 0). The result is that of ops::experts over all experts in one process, except for
// the order of a token's sum over its choices. Each rank adds up its experts' part in the order of choices. These
// partial sums, rounded to the type of x, are added in fp32 along the tree over ranks and rounded once.
//
// Bits do not depend on the kind, on the number of chunks or on the number in flight: an expert's rows are multiplied
// one by one; weight gradients are one product over all rows, ordered by source rank, then position; a rank without a
// part counts as zero. There are two exceptions. If the library multiplies instead of our tiles, a row's bits may
// depend on how many rows come with it, and so on the number of chunks. all_to_all_2d adds node by node, which is the
// same tree only if a node has a power of two of ranks.
//
// On a device the host waits for nothing with kAllGather, if the ranks are known to have the same number of tokens
// (KnownTokens). With the other kinds it waits once for each hop, because it makes tensors with as many rows as the
// counts say. It does not wait in backward, nor for counts that are known from an earlier call.
//
// Source: Optimus §3.1, Algorithm 1 (allgather); BaGuaLu §4.2 (the two hops of all_to_all_2d).

#include <array>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "config/moe_config.h"
#include "ops/experts.h"

namespace athanor::moe {

struct DispatchOptions {
  DispatchKind kind = DispatchKind::kAllToAll;  ///< not kAuto
  int64_t chunks = 1;     ///< parts of a rank's tokens, one being sent while another is computed; equal on every rank
  int64_t in_flight = 1;  ///< chunks sent ahead of the one that is computed, at least 1
  int inner_ranks = 1;    ///< all_to_all_2d: consecutive ranks of the group that are one node
  bool device_form = false;  ///< for tests: CPU tensors, too, take the form for devices
};

/// How many rows go between which ranks for some choices: what a call of all_to_all or all_to_all_2d finds out.
struct RowCounts {
  struct OfHop {
    Tensor here;     ///< int64 [2, peers, chunks], on the device of the tokens: rows to each peer, and from it
    Tensor on_host;  ///< the same
  };
  std::array<OfHop, 2> hops;  ///< all_to_all has one
};

/// What ranks know of a call before they make it, so that they need not ask one another.
struct KnownTokens {
  bool equal = false;  ///< every rank of the group passes the same number of tokens
  /// If not null and empty, it is filled. A later call with the same choices (the recomputation of a layer) takes it
  /// from here, and exchanges no counts.
  std::shared_ptr<RowCounts> counts = nullptr;
  /// With `equal`: no expert is chosen by more of a rank's tokens than this; −1 if that is not known. On a device each
  /// message then has room for as many rows as there can be, and no numbers are exchanged or waited for.
  int64_t most_of_expert = -1;
};

class Dispatch {
 public:
  /// @param group  the expert group; outlives this.
  /// @throws ConfigError if inner_ranks does not divide the size of the group.
  Dispatch(comm::Communicator& group, const DispatchOptions& options);

  /// Returns y_TD for this rank's tokens (ops::experts). Collective over the group, in backward too: every rank calls
  /// it the same number of times, in the same order, with the same numbers of experts, hidden elements and choices,
  /// though possibly without tokens.
  /// @param weights_TK     fp32; gets its gradient.
  /// @param expert_ids_TK  int64, global; negative: a dropped choice.
  /// @param local          the L experts of this rank; backward adds into their gradients.
  /// @param known          the same on every rank.
  /// @param meanwhile      if not null, it is called once: on a device while the host waits for counts.
  Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK,
                 const ops::ExpertWeights& local, CombineWeights combine = CombineWeights::kAfterDown,
                 const KnownTokens& known = {}, const std::function<void()>& meanwhile = {});

  comm::Communicator& group() const { return group_; }
  const DispatchOptions& options() const { return options_; }

 private:
  comm::Communicator& group_;
  DispatchOptions options_;
};

}  // namespace athanor::moe
