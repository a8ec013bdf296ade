#include "moe/router.h"

#include "kernels/routing.h"
#include "ops/linear.h"

namespace athanor::moe {
namespace {

Tensor choose(const Tensor& scores_TE, int64_t k) {
  const at::NoGradGuard no_grad;
  const Tensor scores = scores_TE.contiguous();
  Tensor ids = at::empty({scores.size(0), k}, scores.options().dtype(at::kLong));
  const float* from = scores.const_data_ptr<float>();
  auto* to = ids.data_ptr<int64_t>();
  const int64_t width = scores.size(1);
  ops::for_rows(scores.size(0), width, [&](int64_t begin, int64_t end) {
    kernels::top_k(from + begin * width, to + begin * k, end - begin, width, k);
  });
  return ids;
}

Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) {
  const at::NoGradGuard no_grad;
  Tensor counts = at::zeros({num_sequences, num_experts}, at::kFloat);
  const int64_t per_sequence = ids_TK.numel() / std::max<int64_t>(num_sequences, 1);
  const auto* id = ids_TK.const_data_ptr<int64_t>();
  auto* count = counts.data_ptr<float>();
  for (int64_t c = 0; c < ids_TK.numel(); ++c) count[c / per_sequence * num_experts + id[c]] += 1;
  return counts;
}

Tensor entropy(const Tensor& log_probs_TE, const Tensor& probs_TE) {
  const at::NoGradGuard no_grad;
  return -(probs_TE * log_probs_TE).sum();
}

}  // namespace

Routing route(const Tensor& x_TD, const Weight& weight_ED, int64_t num_sequences, int64_t k, bool norm_topk_prob) {
  const int64_t num_experts = weight_ED.value.size(0);
  const Tensor logits_TE = ops::linear(x_TD, weight_ED).to(at::kFloat);
  const Tensor logsumexp_T1 = at::logsumexp(logits_TE, {-1}, /*keepdim=*/true);
  const Tensor log_probs_TE = logits_TE - logsumexp_T1;
  const Tensor probs_TE = at::softmax(logits_TE, -1);
  Routing r;
  r.expert_ids_TK = choose(probs_TE, k);
  r.weights_TK = at::gather(probs_TE, 1, r.expert_ids_TK);
  if (norm_topk_prob) r.weights_TK = r.weights_TK / r.weights_TK.sum(-1, /*keepdim=*/true);
  r.prob_sum_BE = probs_TE.view({num_sequences, -1, num_experts}).sum(1);
  r.count_BE = count_choices(r.expert_ids_TK, num_sequences, num_experts);
  r.z_sum = logsumexp_T1.pow(2).sum();
  r.entropy_sum = entropy(log_probs_TE, probs_TE);
  return r;
}

}  // namespace athanor::moe
