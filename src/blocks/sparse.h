#pragma once
// A sparse layer's feed-forward: a router and its experts, and in some models shared experts, through which every token
// passes.

#include <memory>
#include <optional>
#include <vector>

#include "arch/blocks/sparse.h"
#include "blocks/feed_forward.h"
#include "moe/dispatch.h"
#include "moe/router.h"
#include "ops/experts.h"
#include "parallel/parameters.h"
#include "parallel/tensor_parallel.h"

namespace athanor::inline blocks {

class SparseBlock {
 public:
  /// @param policy  rules of its router in training.
  /// @param ranks   share the intermediate size of all matrices: `parameters` hold this rank's part, and the whole
  ///        router. Their group must outlive this.
  SparseBlock(const SparseSpec& spec, const ParameterStore& parameters, const moe::RoutingPolicy& policy = {},
              const TensorRanks& ranks = {});

  /// x [B, T, D] (normed) → [B, T, D]; with several ranks, a partial sum (leave_tensor_parallel adds them up). With
  /// several ranks the backward is collective.
  /// @param routings  gets the routing; null in evaluation, where nothing is balanced or counted.
  /// @param saved     null, or the choices that were made for the same x: no expert is chosen again.
  /// @param position  the place of x in the run, for the router's noise.
  Tensor forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings, const moe::Choices* saved = nullptr,
                 const moe::BatchPosition& position = {}) const;
  /// The same for one rank.
  Tensor forward(const Tensor& x, std::vector<moe::Routing>* routings) const { return forward({x, x}, routings); }

  /// Sets the dispatch whose ranks share the experts; the constructor's parameters hold this rank's. Null, as before
  /// the first call: they hold all experts. With a dispatch forward and its backward are collective over its group.
  void set_dispatch(std::shared_ptr<moe::Dispatch> dispatch);

  /// Sets the bias, [experts] fp32, that is added to the router's scores for choosing only. The tensor is held, not
  /// copied: changing it in place changes the router.
  void set_router_bias(Tensor bias_E) { router_options_.bias_E = std::move(bias_E); }

 private:
  TensorRanks ranks_;
  int64_t num_experts_;
  CombineWeights combine_;
  moe::RouterOptions router_options_;
  Weight router_;
  ops::ExpertWeights experts_;
  Tensor shared_experts(const Tensor& whole_TD, const Tensor& x_TD) const;

  std::optional<FeedForwardBlock> shared_;
  std::optional<LinearBlock> shared_gate_;
  std::shared_ptr<moe::Dispatch> dispatch_;
};

/// Returns what the experts of a layer compute.
ops::ExpertForm form_of_experts(const SparseSpec& spec);

}  // namespace athanor::inline blocks
