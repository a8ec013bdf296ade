#include <atomic>

#include "comm/communicator.h"
#include "kernels/routing.h"
#include "moe/balance_ranks.h"
#include "moe/router_form.h"
#include "ops/played.h"

namespace athanor::moe {
namespace {

Tensor moved_and_dropped(int64_t moved, int64_t dropped) {
  const Tensor numbers = at::empty({2}, at::kLong);
  numbers.data_ptr<int64_t>()[0] = moved;
  numbers.data_ptr<int64_t>()[1] = dropped;
  return numbers;
}

}  // namespace

Scores HostRouter::compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule) const {
  return moe::compute_scores(logits_TE, rule);
}

Tensor HostRouter::weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule) const {
  return moe::weights_of(scores, ids_TK, rule);
}

Weighed HostRouter::weigh(const Tensor& logits_TE, const Scores& scores, const Tensor& ids_TK, int64_t num_sequences,
                          const kernels::RouterRule& rule) const {
  return moe::weigh(logits_TE, scores, ids_TK, num_sequences, rule);
}

Tensor HostRouter::choose(const Tensor& scores_TE, int64_t k) const {
  Tensor ids = at::empty({scores_TE.size(0), k}, scores_TE.options().dtype(at::kLong));
  if (ops::played("top_k", {scores_TE}, {ids})) return ids;
  const float* from = ops::pointer<float>(scores_TE);
  auto* to = ids.data_ptr<int64_t>();
  const int64_t width = scores_TE.size(1);
  ops::for_rows(scores_TE.size(0), width, [&](int64_t begin, int64_t end) {
    kernels::top_k(from + begin * width, to + begin * k, end - begin, width, k);
  });
  return ids;
}

Tensor HostRouter::count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) const {
  Tensor counts = at::zeros({num_sequences, num_experts}, ids_TK.options().dtype(at::kFloat));
  if (ops::played("count_choices", {ids_TK}, {counts})) return counts;
  const int64_t per_sequence = ids_TK.numel() / std::max<int64_t>(num_sequences, 1);
  const auto* id = ids_TK.const_data_ptr<int64_t>();
  auto* count = counts.data_ptr<float>();
  for (int64_t b = 0; b < num_sequences; ++b, count += num_experts) {
    for (int64_t c = 0; c < per_sequence; ++c) count[*id++] += 1;
  }
  return counts;
}

Tensor HostRouter::count_taken(const Tensor& ids_TK, int64_t num_experts) const {
  Tensor load = at::zeros({num_experts}, ids_TK.options());
  if (ops::played("count_taken", {ids_TK}, {load})) return load;
  const auto* id = ids_TK.const_data_ptr<int64_t>();
  auto* count = load.data_ptr<int64_t>();
  for (int64_t c = 0; c < ids_TK.numel(); ++c) {
    if (id[c] >= 0) ++count[id[c]];
  }
  return load;
}

Tensor HostRouter::balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK,
                                  int64_t num_groups, int64_t num_experts) const {
  if (ops::played("balance", {ids_TK}, {ids_TK})) return at::zeros({2}, ids_TK.options());
  const int64_t k = ids_TK.size(1), choices = ids_TK.numel() / std::max<int64_t>(num_groups, 1);
  auto* id = ids_TK.data_ptr<int64_t>();
  const float* score = scores_TK.defined() ? scores_TK.const_data_ptr<float>() : nullptr;
  std::atomic<int64_t> moved = 0, dropped = 0;
  at::parallel_for(0, num_groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const auto size = static_cast<size_t>(choices);
      const auto scores = score ? std::span(score + group * choices, size) : std::span<const float>();
      const auto counts = balance_group(options, {id + group * choices, size}, scores, k, num_experts);
      moved += counts.moved;
      dropped += counts.dropped;
    }
  });
  return moved_and_dropped(moved, dropped);
}

Tensor HostRouter::balance_share(const BalanceOptions& options, comm::Communicator& ranks, const Tensor& ids_TK,
                                 const Tensor& scores_TK, int64_t num_experts) const {
  const BalanceCounts counts = moe::balance_share(options, share_of(ranks), ids_TK, scores_TK, num_experts);
  return moved_and_dropped(counts.moved, counts.dropped);
}

}  // namespace athanor::moe
