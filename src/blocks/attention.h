#pragma once
// Self-attention of one layer: projections of queries, keys and values, their norm and clipping, rotation, attention,
// output projection.

#include <cstdint>
#include <vector>

#include "arch/blocks/attention.h"
#include "blocks/linear.h"
#include "blocks/norm.h"
#include "ops/attention.h"
#include "ops/cache_attention.h"
#include "ops/norm_rope.h"
#include "ops/rope.h"
#include "ops/tree_attention.h"
#include "parallel/observer.h"
#include "parallel/parameters.h"
#include "parallel/tensor_parallel.h"

namespace athanor::inline blocks {

/// One layer's keys (rotated) and values: each text has a slot. On the device of the model.
struct KvCache {
  Tensor k, v;  ///< [slots, capacity, kv_heads of this rank, dims of a head]
};

/// The rotations of a pass's tokens, [B, T, head_dim/2]; undefined where no layer reads them.
struct Rotations {
  ops::Rotation scaled;    ///< as the model's rope_theta and rope_scaling say
  ops::Rotation unscaled;  ///< for layers with a window that do not follow them
};

/// What a pass through the model appends to caches: the tokens of several texts, one text after the other, as one
/// sequence [1, N]. Each text is either new, with all of its tokens, or has one token that follows those in its slot.
struct NewTokens {
  std::vector<int64_t> slots;    ///< [R], of each text; without new texts 0, 1, …, R − 1
  std::vector<int64_t> lengths;  ///< [R], tokens here
  std::vector<int64_t> past;     ///< [R], tokens in the slot: 0 for all texts, or for none

  int64_t num_texts() const { return static_cast<int64_t>(slots.size()); }
  bool begin_texts() const { return !past.empty() && past.front() == 0; }
};

/// The same, where the model is, in the form that layers read.
struct CachedPass {
  Tensor slots_N, positions_N;     ///< int64, of each token
  Tensor last_R;                   ///< int64, index of each text's last token; undefined if each has one token
  Rotations rotations;             ///< [1, N, head_dim/2]
  ops::DocumentLengths documents;  ///< lengths of new texts, which attend within themselves
  /// For texts with one more token, which attends over its slot: in layers without and with a window.
  ops::KeyCounts counts, counts_in_window;
};

/// Makes the vector of a token that queries, or keys and values, are made of.
class LatentBlock {
 public:
  LatentBlock(const LatentSpec& spec, const ParameterStore& parameters)
      : down_(spec.down, parameters), norm_(spec.norm, parameters) {}

  /// x [B, T, D] → [B, T, rank].
  Tensor of(const Tensor& x) const { return norm_.of(down_.forward(x)); }

 private:
  LinearBlock down_;
  NormBlock norm_;
};

class AttentionBlock {
 public:
  /// @param parameters  those of this rank.
  /// @param place  the layer's name, "model.layers.3", for observers of its logits.
  /// @param ranks  share the heads. If there are fewer key and value heads than ranks, neighbouring ranks hold the same
  ///        ones. Their group must outlive this.
  /// @throws ConfigError if the heads cannot be divided among the ranks.
  AttentionBlock(const AttentionSpec& spec, const ParameterStore& parameters, const std::string& place,
                 const TensorRanks& ranks = {});

  /// x [B, T, D] (normed; of TensorParallelInput::partitioned) → [B, T, D] without the last bias; with several ranks, a
  /// partial sum (leave_tensor_parallel adds them up). With several ranks the call and its backward are collective if
  /// QK-norm is over the whole projection (norm_over_ranks.h).
  /// @param rotations  not read if queries and keys are not rotated.
  /// @param watch     observers that want the logits get them.
  /// @param tree      in evaluation, attention follows it (Labels::tree), without autograd; null: it follows documents.
  Tensor forward(const Tensor& x, const Rotations& rotations, const ops::DocumentLengths& documents,
                 const Watch& watch = {}, const ops::TokenTree* tree = nullptr) const;

  /// Returns the sum over tensor ranks with the last bias.
  Tensor add_bias(const Tensor& sum) const { return o_.add_bias(sum); }

  /// For generation, as forward(): x [1, N, D] are new tokens of texts (NewTokens), whose keys and values are added to
  /// the cache.
  Tensor forward_cached(const Tensor& x, const CachedPass& pass, const KvCache& cache) const;
  /// Returns memory for the keys and values of `slots` texts of at most `capacity` tokens.
  KvCache make_cache(int64_t slots, int64_t capacity) const;

 private:
  struct Heads {
    Tensor q, k, v;  // [B, T, heads, dims of a head], rotated; those with fewer dims end with zeros
  };
  Heads project(const Tensor& x, const Rotations& rotations) const;
  Tensor values(const Tensor& x) const;
  Tensor turn(const Tensor& x, const Weight& norm, const ops::NormRope& how, const ops::Rotation& rotation,
              int64_t heads) const;
  Heads project_sharing_norm(const Tensor& x, const ops::Rotation& rotation) const;
  Heads project_latents(const Tensor& x, const ops::Rotation& rotation) const;
  Tensor keys_of_latent(const Tensor& latent, const Tensor& x) const;
  Tensor widen(const Tensor& heads) const;
  Tensor output(const Tensor& attended) const;

  std::string logits_name_;  // the place for observers
  TensorRanks ranks_;
  int64_t num_heads_, kv_heads_, head_dim_, value_dim_;  // numbers on this rank
  double clip_;
  ops::RmsForm norm_form_;
  QkNorm qk_norm_;
  bool rotates_, scales_rotation_;
  ops::AttentionOptions options_;
  LinearBlock q_, k_, v_, o_;
  std::optional<LatentBlock> query_latent_, key_value_latent_;
  std::optional<LinearBlock> shared_key_;
  Weight q_norm_, k_norm_;
};

}  // namespace athanor::inline blocks
