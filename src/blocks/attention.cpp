#include "blocks/attention.h"

#include "parallel/norm_over_ranks.h"

namespace athanor::inline blocks {
namespace {

ops::NormRope::Norm norm_of(QkNorm norm) {
  if (norm == QkNorm::kNone) return ops::NormRope::Norm::kNone;
  return norm == QkNorm::kWhole ? ops::NormRope::Norm::kWhole : ops::NormRope::Norm::kHead;
}

// The number of `heads` on a rank; a rank has at least one.
int64_t held_heads(int64_t heads, int ranks) {
  ATHANOR_CHECK(
      heads % ranks == 0 || ranks % heads == 0,
      "tensor_parallel_degree ({}) must divide the model's heads ({}), or of key and value heads be divided by "
      "them",
      ranks, heads);
  return std::max<int64_t>(1, heads / ranks);
}

}  // namespace

AttentionBlock::AttentionBlock(const AttentionSpec& spec, const ParameterStore& parameters, const std::string& place,
                               const TensorRanks& ranks)
    : logits_name_(place + ".logits"), ranks_(ranks), num_heads_(held_heads(spec.heads, ranks.size())),
      kv_heads_(held_heads(spec.kv_heads, ranks.size())), head_dim_(spec.head_dim), value_dim_(spec.value_dim),
      clip_(spec.clip), norm_form_(spec.norm_eps, spec.norm_offset), qk_norm_(spec.qk_norm), rotates_(spec.rotates),
      scales_rotation_(spec.scales_rotation), options_{.window = spec.window,
                                                       .scale = spec.scale,
                                                       .soft_cap = spec.soft_cap},
      q_(spec.query, parameters), k_(spec.key, parameters), v_(spec.value, parameters), o_(spec.out, parameters) {
  if (spec.query_latent) query_latent_.emplace(*spec.query_latent, parameters);
  if (spec.key_value_latent) key_value_latent_.emplace(*spec.key_value_latent, parameters);
  if (spec.shared_key) shared_key_.emplace(*spec.shared_key, parameters);
  if (!spec.sinks.empty()) options_.sinks = parameters.weight(spec.sinks);
  if (qk_norm_ == QkNorm::kNone) return;
  q_norm_ = parameters.weight(spec.query_norm);
  k_norm_ = parameters.weight(spec.key_norm);
}

Tensor AttentionBlock::values(const Tensor& x) const {
  Tensor v = v_.forward(x);
  if (clip_ > 0) v = v.clamp(-clip_, clip_);
  return v.view({x.size(0), x.size(1), kv_heads_, head_dim_});
}

// Queries or keys after their projection, [B, T, heads · head_dim] → [B, T, heads, head_dim].
Tensor AttentionBlock::turn(const Tensor& x, const Weight& norm, const ops::NormRope& how,
                            const ops::Rotation& rotation, int64_t heads) const {
  if (rotates_) return ops::norm_rope(x, norm, how, rotation, heads);
  ATHANOR_ASSERT(how.norm == ops::NormRope::Norm::kNone);
  return (clip_ > 0 ? x.clamp(-clip_, clip_) : x).view({x.size(0), x.size(1), heads, head_dim_});
}

AttentionBlock::Heads AttentionBlock::project(const Tensor& x, const Rotations& rotations) const {
  const ops::Rotation& rotation = scales_rotation_ ? rotations.scaled : rotations.unscaled;
  if (key_value_latent_) return project_latents(x, rotation);
  if (qk_norm_ == QkNorm::kWhole && !ranks_.alone()) return project_sharing_norm(x, rotation);
  const ops::NormRope how{norm_of(qk_norm_), norm_form_.eps, clip_, norm_form_.offset};
  const Tensor v = values(x);
  return {turn(q_.forward(x), q_norm_, how, rotation, num_heads_),
          turn(k_.forward(x), k_norm_, how, rotation, kv_heads_), v};
}

AttentionBlock::Heads AttentionBlock::project_sharing_norm(const Tensor& x, const ops::Rotation& rotation) const {
  const ops::NormRope then{ops::NormRope::Norm::kNone, norm_form_.eps, clip_};
  const Tensor v = values(x);
  const auto [q, k] = rms_norm_over_ranks({q_.forward(x), k_.forward(x)}, q_norm_, k_norm_, norm_form_, *ranks_.group);
  return {turn(q, {}, then, rotation, num_heads_), turn(k, {}, then, rotation, kv_heads_), v};
}

// Kernels of attention have heads whose queries, keys and values have as many dims: zeros change no product.
Tensor AttentionBlock::widen(const Tensor& heads) const {
  const int64_t missing = std::max(head_dim_, value_dim_) - heads.size(3);
  return missing > 0 ? at::constant_pad_nd(heads, {0, missing}) : heads;
}

// Positions turn dim i of a head with i + half of it: so the halves of the dims that they turn stand at the beginnings
// of the head's halves.
Tensor AttentionBlock::keys_of_latent(const Tensor& latent, const Tensor& x) const {
  const std::vector<int64_t> heads = {x.size(0), x.size(1), num_heads_, -1};
  const Tensor own = k_.forward(latent).view(heads), shared = shared_key_->forward(x).unsqueeze(2).expand(heads);
  std::vector<Tensor> parts;
  for (const int64_t half : {0, 1}) {
    for (const Tensor* dims : {&shared, &own}) {
      const int64_t count = dims->size(3) / 2;
      parts.push_back(dims->narrow(3, half * count, count));
    }
  }
  return at::cat(parts, 3).view({x.size(0), x.size(1), num_heads_ * head_dim_});
}

AttentionBlock::Heads AttentionBlock::project_latents(const Tensor& x, const ops::Rotation& rotation) const {
  const ops::NormRope turned{ops::NormRope::Norm::kNone, norm_form_.eps, 0};
  const Tensor latent = key_value_latent_->of(x);
  const Tensor k = widen(turn(keys_of_latent(latent, x), {}, turned, rotation, num_heads_)),
               v = widen(v_.forward(latent).view({x.size(0), x.size(1), num_heads_, value_dim_}));
  const Tensor read = query_latent_ ? query_latent_->of(x) : x;
  return {widen(turn(q_.forward(read), {}, turned, rotation, num_heads_)), k, v};
}

Tensor AttentionBlock::output(const Tensor& attended) const {
  const Tensor values = attended.size(3) > value_dim_ ? attended.narrow(3, 0, value_dim_) : attended;
  return o_.product(values.reshape({attended.size(0), attended.size(1), num_heads_ * value_dim_}));
}

Tensor AttentionBlock::forward(const Tensor& x, const Rotations& rotations, const ops::DocumentLengths& documents,
                               const Watch& watch, const ops::TokenTree* tree) const {
  const auto [q, k, v] = project(x, rotations);
  if (tree) return output(ops::tree_attention(q, k, v, *tree, options_));
  if (!watch.wants_attention_logits()) return output(ops::attention(q, k, v, documents, options_));
  Tensor largest;
  const Tensor attended = ops::attention_with_logits(q, k, v, documents, largest, options_);
  watch.attention_logits(logits_name_, largest);
  return output(attended);
}

KvCache AttentionBlock::make_cache(int64_t slots, int64_t capacity) const {
  const std::vector<int64_t> shape = {slots, capacity, kv_heads_, std::max(head_dim_, value_dim_)};
  return {at::empty(shape, q_.options()), at::empty(shape, q_.options())};
}

Tensor AttentionBlock::forward_cached(const Tensor& x, const CachedPass& pass, const KvCache& cache) const {
  const auto [q, k, v] = project(x, pass.rotations);
  cache.k.index_put_({pass.slots_N, pass.positions_N}, k[0]);
  cache.v.index_put_({pass.slots_N, pass.positions_N}, v[0]);
  if (pass.counts.of_row.empty()) return output(ops::attention(q, k, v, pass.documents, options_));
  const ops::KeyCounts& counts = options_.window > 0 ? pass.counts_in_window : pass.counts;
  return output(ops::cache_attention(q[0], cache.k, cache.v, counts, options_).unsqueeze(0));
}

}  // namespace athanor::inline blocks
