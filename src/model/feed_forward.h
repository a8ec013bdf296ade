#pragma once
// The second half of a layer: one SwiGLU, or a router and its experts.

#include <vector>

#include "config/model_config.h"
#include "moe/router.h"
#include "ops/experts.h"
#include "parallel/parameters.h"

namespace athanor {

class FeedForward {
 public:
  /// @param layer  says whether it has experts. @param prefix  of the layer's parameters.
  FeedForward(const ModelConfig& model, const ParameterStore& parameters, int64_t layer, const std::string& prefix);

  /// x [B, T, D] (normed) → [B, T, D]. A sparse layer appends its routing to `routings` where that is not null.
  /// @param saved  null, or what a sparse layer decided for the same x: used instead of routing again.
  Tensor forward(const Tensor& x, std::vector<moe::Routing>* routings, const moe::Choices* saved = nullptr) const;
  bool is_sparse() const { return sparse_; }

 private:
  Tensor forward_sparse(const Tensor& x, std::vector<moe::Routing>* routings, const moe::Choices* saved) const;

  bool sparse_;
  int64_t num_experts_;
  moe::RouterOptions router_options_;
  Weight gate_, up_, down_, router_;
  ops::ExpertWeights experts_;
};

}  // namespace athanor
