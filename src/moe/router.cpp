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

Tensor entropy(const Tensor& probs_TE) {
  const at::NoGradGuard no_grad;
  return -at::xlogy(probs_TE, probs_TE).sum();  // 0 where a probability is
}

}  // namespace

RouterScore parse_router_score(const std::string& name) {
  if (name == "softmax") return RouterScore::kSoftmax;
  ATHANOR_CHECK(name == "sigmoid", "model.router_score: expected softmax or sigmoid, got {}", name);
  return RouterScore::kSigmoid;
}

Routing route(const Tensor& x_TD, const Weight& weight_ED, const RouterOptions& options, int64_t num_sequences,
              const Choices* saved) {
  const int64_t num_experts = weight_ED.value.size(0);
  const bool sigmoid = options.score == RouterScore::kSigmoid;
  const Tensor logits_TE = ops::linear(x_TD, weight_ED).to(at::kFloat);
  const Tensor logsumexp_T1 = at::logsumexp(logits_TE, {-1}, /*keepdim=*/true);
  const Tensor scores_TE = sigmoid ? at::sigmoid(logits_TE) : at::softmax(logits_TE, -1);
  const Tensor probs_TE = sigmoid ? scores_TE / scores_TE.sum(-1, /*keepdim=*/true) : scores_TE;
  Routing r;
  r.expert_ids_TK = saved ? saved->expert_ids_TK : choose(scores_TE, options.k);
  r.weights_TK = at::gather(scores_TE, 1, r.expert_ids_TK);
  if (options.norm_topk_prob) r.weights_TK = r.weights_TK / r.weights_TK.sum(-1, /*keepdim=*/true);
  if (options.scaling_factor != 1) r.weights_TK = r.weights_TK * options.scaling_factor;
  r.prob_sum_BE = probs_TE.view({num_sequences, -1, num_experts}).sum(1);
  r.z_sum = logsumexp_T1.pow(2).sum();
  if (!saved) {
    r.count_BE = count_choices(r.expert_ids_TK, num_sequences, num_experts);
    r.entropy_sum = entropy(probs_TE);
  }
  return r;
}

}  // namespace athanor::moe
