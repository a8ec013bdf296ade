#pragma once
// Self-attention of one layer: projections, QK-norm, clipping, rotation, attention, output projection.

#include "config/families.h"
#include "ops/attention.h"
#include "ops/rope.h"
#include "parallel/parameters.h"
#include "parallel/tensor_parallel.h"

namespace athanor {

/// Keys and values of the tokens seen so far, one for each layer: [B, capacity, kv_heads, head_dim].
struct KvCache {
  Tensor k, v;
  int64_t length = 0;
};

class AttentionBlock {
 public:
  /// @param ranks  share the heads: `parameters` hold this rank's. If there are fewer key and value heads than ranks,
  ///        neighbouring ranks hold the same ones. They must outlive this.
  AttentionBlock(const ModelConfig& model, const ParameterStore& parameters, const std::string& prefix,
                 const TensorRanks& ranks = {});

  /// x [B, T, D] (normed; of TensorParallelInput::partitioned) → [B, T, D]; with several ranks, a partial sum, and the
  /// call is collective if QK-norm is over the whole projection.
  Tensor forward(const Tensor& x, const ops::Rotation& rotation, const ops::DocumentLengths& documents) const;

  /// For generation on one rank: T new tokens after cache.length old ones; T > 1 only into an empty cache.
  Tensor forward_cached(const Tensor& x, const ops::Rotation& rotation, KvCache& cache) const;

 private:
  struct Heads {
    Tensor q, k, v;  // [B, T, heads, head_dim], rotated
  };
  Heads project(const Tensor& x, const ops::Rotation& rotation) const;
  Tensor values(const Tensor& x) const;
  Heads project_sharing_norm(const Tensor& x, const ops::Rotation& rotation) const;
  Tensor output(const Tensor& attended) const;

  TensorRanks ranks_;
  int64_t num_heads_, kv_heads_, head_dim_;  // numbers on this rank
  double clip_, norm_eps_;
  QkNorm qk_norm_;
  Weight q_, k_, v_, o_, q_norm_, k_norm_;
};

}  // namespace athanor
