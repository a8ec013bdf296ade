#include "model/attention_block.h"

#include "ops/linear.h"
#include "ops/norm_rope.h"
#include "parallel/norm_over_ranks.h"

namespace athanor::inline model {
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

AttentionBlock::AttentionBlock(const ModelConfig& model, const ParameterStore& parameters, const std::string& prefix,
                               const TensorRanks& ranks)
    : logits_name_(prefix + "logits"), ranks_(ranks), num_heads_(held_heads(model.num_attention_heads, ranks.size())),
      kv_heads_(held_heads(model.kv_heads(), ranks.size())), head_dim_(model.head_dim()), clip_(model.clip_qkv),
      norm_eps_(norm_eps(model)), qk_norm_(family_of(model).qk_norm) {
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

Tensor AttentionBlock::values(const Tensor& x) const {
  Tensor v = ops::linear(x, v_);
  if (clip_ > 0) v = v.clamp(-clip_, clip_);
  return v.view({x.size(0), x.size(1), kv_heads_, head_dim_});
}

AttentionBlock::Heads AttentionBlock::project(const Tensor& x, const ops::Rotation& rotation) const {
  if (qk_norm_ == QkNorm::kWhole && !ranks_.alone()) return project_sharing_norm(x, rotation);
  const ops::NormRope how{norm_of(qk_norm_), norm_eps_, clip_};
  const Tensor v = values(x);
  return {ops::norm_rope(ops::linear(x, q_), q_norm_, how, rotation, num_heads_),
          ops::norm_rope(ops::linear(x, k_), k_norm_, how, rotation, kv_heads_), v};
}

AttentionBlock::Heads AttentionBlock::project_sharing_norm(const Tensor& x, const ops::Rotation& rotation) const {
  const ops::NormRope then{ops::NormRope::Norm::kNone, norm_eps_, clip_};
  const Tensor v = values(x);
  const auto [q, k] =
      rms_norm_over_ranks({ops::linear(x, q_), ops::linear(x, k_)}, q_norm_, k_norm_, norm_eps_, *ranks_.group);
  return {ops::norm_rope(q, {}, then, rotation, num_heads_), ops::norm_rope(k, {}, then, rotation, kv_heads_), v};
}

Tensor AttentionBlock::output(const Tensor& attended) const {
  return ops::linear(attended.reshape({attended.size(0), attended.size(1), num_heads_ * head_dim_}), o_);
}

Tensor AttentionBlock::forward(const Tensor& x, const ops::Rotation& rotation, const ops::DocumentLengths& documents,
                               const Watch& watch, const ops::TokenTree* tree) const {
  const Heads heads = project(x, rotation);
  if (tree) return output(ops::tree_attention(heads.q, heads.k, heads.v, *tree));
  if (!watch.wants_attention_logits()) return output(ops::attention(heads.q, heads.k, heads.v, documents));
  Tensor largest;
  const Tensor attended = ops::attention_with_logits(heads.q, heads.k, heads.v, documents, largest);
  watch.attention_logits(logits_name_, largest);
  return output(attended);
}

}  // namespace athanor::inline model
