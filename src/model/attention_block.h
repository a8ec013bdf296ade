#pragma once
// Self-attention of one layer: projections, QK-norm, clipping, rotation, attention, output.

#include "config/families.h"
#include "ops/attention.h"
#include "ops/rope.h"
#include "parallel/parameters.h"

namespace athanor {

/// Keys and values of the tokens seen so far, one for each layer: [B, capacity, kv_heads, head_dim].
struct KvCache {
  Tensor k, v;
  int64_t length = 0;
};

class AttentionBlock {
 public:
  AttentionBlock(const ModelConfig& model, const ParameterStore& parameters, const std::string& prefix);

  /// x [B, T, D] (normed) → [B, T, D].
  Tensor forward(const Tensor& x, const ops::Rotation& rotation, const ops::DocumentLengths& documents) const;

  /// The same for generation: T new tokens after cache.length old ones; T > 1 only into an empty cache.
  Tensor forward_cached(const Tensor& x, const ops::Rotation& rotation, KvCache& cache) const;

 private:
  struct Heads {
    Tensor q, k, v;  // [B, T, heads, head_dim], rotated
  };
  Heads project(const Tensor& x, const ops::Rotation& rotation) const;
  Tensor output(const Tensor& attended) const;

  int64_t num_heads_, kv_heads_, head_dim_;
  double clip_, norm_eps_;
  QkNorm qk_norm_;
  Weight q_, k_, v_, o_, q_norm_, k_norm_;
};

}  // namespace athanor
