#pragma once
// The feed-forward of a layer. In a dense layer it is one SwiGLU. In a sparse layer it is a router and its experts, and
// in some families also shared experts, through which every token passes.

#include <memory>
#include <vector>

#include "config/model_config.h"
#include "moe/dispatch.h"
#include "moe/router.h"
#include "ops/experts.h"
#include "parallel/parameters.h"
#include "parallel/tensor_parallel.h"

namespace athanor::inline model {

class FeedForward {
 public:
  /// @param layer   index of the layer in the model, which determines whether it has experts.
  /// @param prefix  beginning of the names of the layer's parameters: "model.layers.3.".
  /// @param policy  rules of its router in training.
  /// @param ranks   share the intermediate size of all matrices: `parameters` hold this rank's part, and the whole
  ///        router. Their group must outlive this.
  FeedForward(const ModelConfig& model, const ParameterStore& parameters, int64_t layer, const std::string& prefix,
              const moe::RoutingPolicy& policy = {}, const TensorRanks& ranks = {});

  /// x [B, T, D] (normed) → [B, T, D]; with several ranks, a partial sum (leave_tensor_parallel adds them up). With
  /// several ranks the backward of a sparse layer is collective.
  /// @param routings  a sparse layer appends its routing; null in evaluation, where nothing is balanced or counted.
  /// @param saved     null, or the choices that a sparse layer made for the same x: no expert is chosen again.
  /// @param position  the place of x in the run, for the router's noise.
  Tensor forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings, const moe::Choices* saved = nullptr,
                 const moe::BatchPosition& position = {}) const;
  /// The same for one rank.
  Tensor forward(const Tensor& x, std::vector<moe::Routing>* routings) const { return forward({x, x}, routings); }
  bool is_sparse() const { return sparse_; }

  /// Sets the dispatch whose ranks share the experts; the constructor's parameters hold this rank's. Null, as before
  /// the first call: they hold all experts. With a dispatch forward and its backward are collective over its group. A
  /// dense layer ignores the call.
  void set_dispatch(std::shared_ptr<moe::Dispatch> dispatch);

  /// Sets the bias, [experts] fp32, that is added to the router's scores for choosing only. The tensor is held, not
  /// copied: changing it in place changes the router.
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
  CombineWeights combine_;
  moe::RouterOptions router_options_;
  SwiGlu dense_, shared_;  // dense_: of a dense layer; shared_: the shared experts, undefined if there are none
  Weight router_;
  ops::ExpertWeights experts_;
  std::shared_ptr<moe::Dispatch> dispatch_;
};

}  // namespace athanor::inline model
