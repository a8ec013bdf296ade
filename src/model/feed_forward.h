#pragma once
// The second half of a layer: one SwiGLU; or a router and its experts, with shared experts in addition, through which
// every token passes.

#include <memory>
#include <vector>

#include "config/model_config.h"
#include "moe/dispatch.h"
#include "moe/router.h"
#include "ops/experts.h"
#include "parallel/parameters.h"
#include "parallel/tensor_parallel.h"

namespace athanor {

class FeedForward {
 public:
  /// @param layer   number of the layer, which determines whether it has experts.
  /// @param prefix  of the layer's parameters.
  /// @param policy  of its router in training.
  /// @param ranks   share the intermediate size of all matrices: `parameters` hold this rank's part, and the whole
  ///        router. They must outlive this.
  FeedForward(const ModelConfig& model, const ParameterStore& parameters, int64_t layer, const std::string& prefix,
              const moe::RoutingPolicy& policy = {}, const TensorRanks& ranks = {});

  /// x [B, T, D] (normed) → [B, T, D]; with several ranks, a partial sum. A sparse layer in training appends its
  /// routing to `routings`; null in evaluation, where nothing is balanced or counted.
  /// @param saved     null, or the choices of a sparse layer for the same x, used instead of routing again.
  /// @param position  of x in the run, for the router's noise.
  Tensor forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings, const moe::Choices* saved = nullptr,
                 const moe::BatchPosition& position = {}) const;
  /// For one rank.
  Tensor forward(const Tensor& x, std::vector<moe::Routing>* routings) const { return forward({x, x}, routings); }
  bool is_sparse() const { return sparse_; }

  /// Sets the dispatch whose ranks share the experts; `parameters` hold this rank's. Null: `parameters` hold all
  /// experts. With a dispatch forward and its backward are collective.
  void set_dispatch(std::shared_ptr<moe::Dispatch> dispatch);

  /// Sets the bias, [experts] fp32, that is added to the router's scores for choosing; held, not copied, so that it may
  /// change in place.
  void set_router_bias(Tensor bias_E) { router_options_.bias_E = std::move(bias_E); }

 private:
  struct SwiGlu {
    Weight gate, up, down;
    Tensor forward(const Tensor& x) const;
  };
  static SwiGlu make_swiglu(const ParameterStore& parameters, const std::string& prefix);
  Tensor forward_sparse(const TensorParallelInput& x, std::vector<moe::Routing>* routings, const moe::Choices* saved,
                        const moe::BatchPosition& position) const;

  TensorRanks ranks_;
  bool sparse_;
  int64_t num_experts_;
  ops::CombineWeights combine_;
  moe::RouterOptions router_options_;
  SwiGlu dense_, shared_;  // dense_: of a dense layer; shared_: the shared experts, undefined if there are none
  Weight router_;
  ops::ExpertWeights experts_;
  std::shared_ptr<moe::Dispatch> dispatch_;
};

}  // namespace athanor
