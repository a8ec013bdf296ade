#include "comm/communicator.h"
#include "comm/watches.h"
#include "moe/router_form.h"
#include "ops/transfer.h"

namespace athanor::moe {
namespace {

// Returns how often each of the numbers 0 to n − 1 is among the ids of each row, int64 [rows, n]; others do not count.
Tensor count(const Tensor& ids_RC, int64_t n) {
  const Tensor counted = (ids_RC >= 0).logical_and(ids_RC < n).to(at::kLong);
  return at::zeros({ids_RC.size(0), n}, ids_RC.options()).scatter_add_(1, ids_RC.clamp(0, n - 1), counted);
}

// The expert of choice c of group g is (c mod num_experts), whatever the scores are.
Tensor force_uniform(const Tensor& ids_GC, int64_t k, int64_t num_experts) {
  const Tensor before = ids_GC.view({ids_GC.size(0), -1, k}).clone();
  ids_GC.copy_(at::arange(ids_GC.size(1), ids_GC.options()).remainder(num_experts).expand_as(ids_GC));
  const Tensor now = ids_GC.view(before.sizes());
  return (now.unsqueeze(-1) == before.unsqueeze(-2)).any(-1).logical_not().sum();
}

// The place of a choice among those of its expert: two stable sorts, by the order in which choices are kept and then by
// expert, put the choices of an expert in that order one after another.
Tensor drop_over_capacity(const Tensor& ids_GC, const Tensor& scores_GC, int64_t num_experts, int64_t capacity,
                          CapacityOrder order) {
  Tensor first = at::arange(ids_GC.size(1), ids_GC.options()).expand_as(ids_GC);
  if (order == CapacityOrder::kScore) {
    const Tensor scores = at::where(scores_GC.isnan(), -1.0f, scores_GC);
    first = std::get<1>(at::sort(scores, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  }
  const Tensor by_order = ids_GC.gather(1, first);
  const auto [experts, at] = at::sort(by_order, /*stable=*/true, /*dim=*/1, /*descending=*/false);
  const Tensor counts = count(ids_GC, num_experts), begins = counts.cumsum(1) - counts;
  const Tensor place = at::arange(ids_GC.size(1), ids_GC.options()).expand_as(ids_GC) - begins.gather(1, experts);
  const Tensor over = at::zeros_like(ids_GC).scatter_(1, first.gather(1, at), (place >= capacity).to(at::kLong));
  ids_GC.copy_(at::where(over == 1, ids_GC.bitwise_not(), ids_GC));
  return over.sum();
}

// A rule in which a choice depends on all earlier ones of the group, and not on scores, is computed by the host.
Tensor balance_on_host(const BalanceOptions& options, const Tensor& ids_GC, int64_t k, int64_t num_experts) {
  const Tensor ids = ops::fetch(ids_GC).clone();
  BalanceCounts counts;
  const auto choices = static_cast<size_t>(ids.size(1));
  for (int64_t g = 0; g < ids.size(0); ++g) {
    const std::span group(ids.data_ptr<int64_t>() + g * ids.size(1), choices);
    const BalanceCounts of_group = balance_group(options, group, {}, k, num_experts);
    counts.moved += of_group.moved, counts.dropped += of_group.dropped;
  }
  ids_GC.copy_(ops::send(ids, ids_GC.device()));
  return ops::send(at::tensor({counts.moved, counts.dropped}, at::kLong), ids_GC.device());
}

}  // namespace

Scores PortableRouter::compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule) const {
  const at::NoGradGuard no_grad;
  return portable::compute_scores(logits_TE, rule);
}

Tensor PortableRouter::weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule) const {
  const at::NoGradGuard no_grad;
  return portable::weights_of(scores, ids_TK, rule);
}

Weighed PortableRouter::weigh(const Tensor& logits_TE, const Scores& /*scores*/, const Tensor& ids_TK,
                              int64_t num_sequences, const kernels::RouterRule& rule) const {
  return portable::weigh(logits_TE, ids_TK, num_sequences, rule);
}

Tensor PortableRouter::choose(const Tensor& scores_TE, int64_t k) const {
  return std::get<1>(at::sort(scores_TE, /*stable=*/true, /*dim=*/1, /*descending=*/true)).narrow(1, 0, k).contiguous();
}

Tensor PortableRouter::count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) const {
  return count(ids_TK.reshape({num_sequences, -1}), num_experts).to(at::kFloat);
}

Tensor PortableRouter::count_taken(const Tensor& ids_TK, int64_t num_experts) const {
  return count(ids_TK.reshape({1, -1}), num_experts).squeeze(0);
}

Tensor PortableRouter::balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK,
                                      int64_t num_groups, int64_t num_experts) const {
  const Tensor ids_GC = ids_TK.view({num_groups, -1}), none = at::zeros({}, ids_TK.options());
  switch (options.kind) {
    case Balance::kNone: return at::stack({none, none});
    case Balance::kCapacity: {
      const int64_t capacity = expert_capacity(options.capacity_factor, ids_GC.size(1), num_experts);
      const Tensor scores_GC = scores_TK.defined() ? scores_TK.reshape(ids_GC.sizes()) : Tensor();
      return at::stack({none, drop_over_capacity(ids_GC, scores_GC, num_experts, capacity, options.order)});
    }
    case Balance::kForcedUniform: return at::stack({force_uniform(ids_GC, ids_TK.size(1), num_experts), none});
    default: return balance_on_host(options, ids_GC, ids_TK.size(1), num_experts);
  }
}

Tensor gather_rows(comm::Communicator& ranks, const Tensor& rows) {
  const Tensor all = at::empty({ranks.size() * rows.size(0), rows.size(1)}, rows.options());
  const comm::SendsFor purpose(TrafficPurpose::kBalance);
  ranks.all_gather(all, rows.contiguous()).wait();
  return all;
}

Tensor PortableRouter::balance_share(const BalanceOptions& options, comm::Communicator& ranks, const Tensor& ids_TK,
                                     const Tensor& scores_TK, int64_t num_experts) const {
  const Tensor before = ids_TK.clone(), all = gather_rows(ranks, ids_TK);
  balance_groups(options, all, scores_TK.defined() ? gather_rows(ranks, scores_TK) : Tensor(), 1, num_experts);
  ids_TK.copy_(all.narrow(0, ranks.rank() * ids_TK.size(0), ids_TK.size(0)));
  const Tensor is_dropped = ids_TK < 0;
  const Tensor was_chosen = (ids_TK.unsqueeze(-1) == before.unsqueeze(-2)).any(-1);
  return at::stack({was_chosen.logical_or(is_dropped).logical_not().sum(), is_dropped.sum()});
}

}  // namespace athanor::moe
