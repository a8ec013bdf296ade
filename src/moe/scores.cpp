#include "moe/scores.h"

#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "ops/library_functions.h"
#include "ops/played.h"

namespace athanor::moe {
namespace {

using kernels::RouterRule;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPieceTokens =
    64;  // sums of scores stay in the first-level cache, and short inputs have work for each core

// @param entropy_sum  fp64.
Tensor numbers_of(const Tensor& num_flat, const Tensor& entropy_sum) {
  return at::stack({num_flat, entropy_sum.view(at::kLong)});
}

// Sums over each sequence in pieces; the pieces are added in order.
void sum_sequences(const Tensor& logits_TE, const Scores& scores, int64_t num_sequences, const RouterRule& rule,
                   Weighed& out) {
  const int64_t tokens = logits_TE.size(0), width = rule.width;
  const int64_t per_sequence = tokens / std::max<int64_t>(num_sequences, 1);
  const int64_t pieces = (per_sequence + kPieceTokens - 1) / kPieceTokens;
  const auto options = scores.scores_TE.options();
  out.prob_sum_BE = at::zeros({num_sequences, width}, options);
  if (ops::played("router_sums", {logits_TE, scores.scores_TE, scores.logsumexp_T}, {out.prob_sum_BE})) {
    out.z_sum = at::empty({}, options);
    out.numbers = at::empty({2}, options.dtype(at::kLong));
    return;
  }
  std::vector<kernels::RouterSums> sums(static_cast<size_t>(num_sequences * pieces));
  std::vector<float> prob_sums(static_cast<size_t>(num_sequences * pieces * width));
  const float* score = ops::pointer<float>(scores.scores_TE);
  const float* logsumexp = ops::pointer<float>(scores.logsumexp_T);
  ops::with_element(logits_TE, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* logits = ops::pointer<T>(logits_TE);
    ops::for_rows(num_sequences * pieces, kPieceTokens * width, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t in_sequence = piece % pieces * kPieceTokens;
        const int64_t first = piece / pieces * per_sequence + in_sequence;
        sums[static_cast<size_t>(piece)] = kernels::router_sums<T>(
            logits + first * width, score + first * width, logsumexp + first, prob_sums.data() + piece * width,
            std::min(kPieceTokens, per_sequence - in_sequence), rule);
      }
    });
  });
  kernels::RouterSums total;
  auto* prob_sum = out.prob_sum_BE.data_ptr<float>();
  for (int64_t piece = 0; piece < num_sequences * pieces; ++piece) {
    const auto& part = sums[static_cast<size_t>(piece)];
    total.z += part.z;
    total.entropy += part.entropy;
    total.num_flat += part.num_flat;
    for (int64_t e = 0; e < width; ++e) {
      prob_sum[piece / pieces * width + e] += prob_sums[static_cast<size_t>(piece * width + e)];
    }
  }
  out.z_sum = at::scalar_tensor(total.z, at::kFloat);
  out.numbers = numbers_of(at::scalar_tensor(total.num_flat, at::kLong), at::scalar_tensor(total.entropy, at::kDouble));
}

struct Weigh : torch::autograd::Function<Weigh> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits, const Scores& scores, const Tensor& ids,
                               int64_t num_sequences, const RouterRule& rule, Weighed* out) {
    out->weights_TK = weights_of(scores, ids, rule);
    sum_sequences(logits, scores, num_sequences, rule, *out);
    ctx->save_for_backward({rule.sigmoid ? logits : Tensor()});
    ctx->saved_data["scores"] = scores.scores_TE;
    ctx->saved_data["logsumexp"] = scores.logsumexp_T;
    ctx->saved_data["ids"] = ids;
    ctx->saved_data["dtype"] = static_cast<int64_t>(logits.scalar_type());
    ctx->saved_data["num_sequences"] = num_sequences;
    ctx->saved_data["sigmoid"] = rule.sigmoid;
    ctx->saved_data["norm"] = rule.norm_topk_prob;
    ctx->saved_data["scaling"] = static_cast<double>(rule.scaling_factor);
    return {out->weights_TK, out->prob_sum_BE, out->z_sum};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto& saved = ctx->saved_data;
    const Tensor scores = saved["scores"].toTensor(), logsumexp = saved["logsumexp"].toTensor(),
                 ids = saved["ids"].toTensor(), logits = ctx->get_saved_variables()[0];
    const RouterRule rule{scores.size(1), ids.size(1), saved["sigmoid"].toBool(), saved["norm"].toBool(),
                          static_cast<float>(saved["scaling"].toDouble())};
    const int64_t tokens = scores.size(0), width = rule.width, num_sequences = saved["num_sequences"].toInt();
    const auto or_zeros = [options = scores.options()](const Tensor& grad, at::IntArrayRef shape) {
      return grad.defined() ? grad.contiguous() : at::zeros(shape, options);
    };
    const Tensor dweights = or_zeros(grads[0], ids.sizes()), dprob = or_zeros(grads[1], {num_sequences, width});
    const Tensor dlogits =
        at::empty({tokens, width}, scores.options().dtype(static_cast<at::ScalarType>(saved["dtype"].toInt())));
    if (ops::played("router_backward", {scores, logsumexp, ids, logits, dweights, dprob}, {dlogits}))
      return {dlogits, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
    const float dz = grads[2].defined() ? grads[2].item<float>() : 0;
    const int64_t per_sequence = tokens / std::max<int64_t>(num_sequences, 1);
    ops::with_element(dlogits, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      const T* logit = logits.defined() ? ops::pointer<T>(logits) : nullptr;
      const float *score = ops::pointer<float>(scores), *lse = ops::pointer<float>(logsumexp),
                  *dweight = ops::pointer<float>(dweights), *dprob_sum = ops::pointer<float>(dprob);
      const auto* id = ids.const_data_ptr<int64_t>();
      T* out = ops::pointer<T>(dlogits);
      ops::for_rows(tokens, width, [&](int64_t begin, int64_t end) {
        while (begin < end) {  // rows of one sequence at a time
          const int64_t sequence = begin / per_sequence, stop = std::min(end, (sequence + 1) * per_sequence);
          kernels::router_backward<T>(logit ? logit + begin * width : nullptr, score + begin * width, lse + begin,
                                      id + begin * rule.k, dweight + begin * rule.k, dprob_sum + sequence * width, dz,
                                      out + begin * width, stop - begin, rule);
          begin = stop;
        }
      });
    });
    return {dlogits, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Scores compute_scores(const Tensor& logits_TE, const RouterRule& rule) {
  const at::NoGradGuard no_grad;
  const int64_t width = rule.width;
  const auto options = logits_TE.options().dtype(at::kFloat);
  Scores out{at::empty(logits_TE.sizes(), options), at::empty({logits_TE.size(0)}, options)};
  if (ops::played("router_scores", {logits_TE}, {out.scores_TE, out.logsumexp_T})) return out;
  auto* scores = out.scores_TE.data_ptr<float>();
  auto* logsumexp = out.logsumexp_T.data_ptr<float>();
  ops::with_element(logits_TE, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* logits = ops::pointer<T>(logits_TE);
    ops::for_rows(logits_TE.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::router_scores<T>(logits + begin * width, scores + begin * width, logsumexp + begin, end - begin, rule);
    });
  });
  return out;
}

Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const RouterRule& rule) {
  const at::NoGradGuard no_grad;
  Tensor weights = at::empty(ids_TK.sizes(), scores.scores_TE.options());
  if (ops::played("router_weights", {scores.scores_TE, ids_TK}, {weights})) return weights;
  const float* score = ops::pointer<float>(scores.scores_TE);
  const auto* id = ids_TK.const_data_ptr<int64_t>();
  auto* weight = weights.data_ptr<float>();
  ops::for_rows(ids_TK.size(0), rule.k, [&](int64_t begin, int64_t end) {
    kernels::router_weights(score + begin * rule.width, id + begin * rule.k, weight + begin * rule.k, end - begin,
                            rule);
  });
  return weights;
}

Weighed weigh(const Tensor& logits_TE, const Scores& scores, const Tensor& ids_TK, int64_t num_sequences,
              const RouterRule& rule) {
  Weighed out;
  const auto outputs = Weigh::apply(logits_TE, scores, ids_TK, num_sequences, rule, &out);
  out.weights_TK = outputs[0];
  out.prob_sum_BE = outputs[1];
  out.z_sum = outputs[2];
  return out;
}

namespace portable {

Scores compute_scores(const Tensor& logits_TE, const RouterRule& rule) {
  const Tensor logits = logits_TE.to(ops::wide_type(logits_TE));
  ops::start_library_functions();
  return {rule.sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1), at::logsumexp(logits, {-1})};
}

Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const RouterRule& rule) {
  const Tensor dropped = ids_TK < 0;
  Tensor weights = at::gather(scores.scores_TE, 1, at::where(dropped, ids_TK.bitwise_not(), ids_TK));
  if (rule.norm_topk_prob) weights = weights / (weights.sum(-1, /*keepdim=*/true) + kernels::kScoreEps);
  return (weights * static_cast<double>(rule.scaling_factor)).masked_fill(dropped, 0);
}

Weighed weigh(const Tensor& logits_TE, const Tensor& ids_TK, int64_t num_sequences, const RouterRule& rule) {
  const auto computed = portable::compute_scores(logits_TE, rule);
  const auto& [scores, logsumexp] = computed;
  const Tensor probs = rule.sigmoid ? scores / (scores.sum(-1, /*keepdim=*/true) + kernels::kScoreEps) : scores;
  Weighed out;
  out.weights_TK = portable::weights_of(computed, ids_TK, rule);
  out.prob_sum_BE = probs.view({num_sequences, -1, rule.width}).sum(1);
  out.z_sum = logsumexp.pow(2).sum();
  const at::NoGradGuard no_grad;
  const Tensor p = probs.detach(), entropy_sum = -at::xlogy(p, p).sum(at::kDouble);
  const Tensor num_flat = (std::get<0>(scores.max(-1)) == std::get<0>(scores.min(-1))).sum();
  out.numbers = numbers_of(num_flat, entropy_sum);
  return out;
}

}  // namespace portable

}  // namespace athanor::moe
