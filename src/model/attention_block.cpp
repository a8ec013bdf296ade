#include "model/attention_block.h"

#include "ops/linear.h"
#include "ops/norm_rope.h"

namespace athanor {
namespace {

ops::NormRope::Norm norm_of(QkNorm norm) {
  if (norm == QkNorm::kNone) return ops::NormRope::Norm::kNone;
  return norm == QkNorm::kWhole ? ops::NormRope::Norm::kWhole : ops::NormRope::Norm::kHead;
}

}  // namespace

AttentionBlock::AttentionBlock(const ModelConfig& model, const ParameterStore& parameters, const std::string& prefix)
    : num_heads_(model.num_attention_heads), kv_heads_(model.kv_heads()), head_dim_(model.head_dim()),
      clip_(model.clip_qkv), norm_eps_(norm_eps(model)), qk_norm_(family_of(model).qk_norm) {
  const std::string attention = prefix + "self_attn.";
  q_ = parameters.weight(attention + "q_proj.weight");
  k_ = parameters.weight(attention + "k_proj.weight");
  v_ = parameters.weight(attention + "v_proj.weight");
  o_ = parameters.weight(attention + "o_proj.weight");
  if (qk_norm_ != QkNorm::kNone) {
    q_norm_ = parameters.weight(attention + "q_norm.weight");
    k_norm_ = parameters.weight(attention + "k_norm.weight");
  }
}

AttentionBlock::Heads AttentionBlock::project(const Tensor& x, const ops::Rotation& rotation) const {
  const ops::NormRope how{norm_of(qk_norm_), norm_eps_, clip_};
  Tensor v = ops::linear(x, v_);
  if (clip_ > 0) v = v.clamp(-clip_, clip_);
  return {ops::norm_rope(ops::linear(x, q_), q_norm_, how, rotation, num_heads_),
          ops::norm_rope(ops::linear(x, k_), k_norm_, how, rotation, kv_heads_),
          v.view({x.size(0), x.size(1), kv_heads_, head_dim_})};
}

Tensor AttentionBlock::output(const Tensor& attended) const {
  return ops::linear(attended.reshape({attended.size(0), attended.size(1), num_heads_ * head_dim_}), o_);
}

Tensor AttentionBlock::forward(const Tensor& x, const ops::Rotation& rotation,
                               const ops::DocumentLengths& documents) const {
  const Heads heads = project(x, rotation);
  return output(ops::attention(heads.q, heads.k, heads.v, documents));
}

Tensor AttentionBlock::forward_cached(const Tensor& x, const ops::Rotation& rotation, KvCache& cache) const {
  const Heads heads = project(x, rotation);
  const int64_t added = x.size(1);
  ATHANOR_ASSERT((added == 1 || cache.length == 0) && cache.length + added <= cache.k.size(1));
  cache.k.narrow(1, cache.length, added).copy_(heads.k);
  cache.v.narrow(1, cache.length, added).copy_(heads.v);
  cache.length += added;
  if (added > 1) return output(ops::attention(heads.q, heads.k, heads.v));
  return output(
      ops::attention_over_cache(heads.q, cache.k.narrow(1, 0, cache.length), cache.v.narrow(1, 0, cache.length)));
}

}  // namespace athanor
