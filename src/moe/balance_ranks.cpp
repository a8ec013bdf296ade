#include "moe/balance_ranks.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/watches.h"

namespace athanor::moe {
namespace {

Tensor bytes_of(const Tensor& values) { return values.contiguous().view({-1}).view(at::kByte); }

// Empty in a played step, whose tensors have no values.
template <class T>
std::span<T> span_of(const Tensor& x) {
  if (x.is_meta()) return {};
  return {ops::pointer<T>(x), static_cast<size_t>(x.numel())};
}

// A choice whose expert was not among the token's choices before was moved; a choice without an expert was dropped.
BalanceCounts count_changes(std::span<const int64_t> before, std::span<const int64_t> after, size_t k) {
  BalanceCounts counts;
  for (size_t begin = 0; begin < after.size(); begin += k) {
    const auto chosen = before.subspan(begin, k);
    for (const int64_t expert : after.subspan(begin, k)) {
      if (expert < 0) {
        ++counts.dropped;
      } else {
        counts.moved += std::ranges::find(chosen, expert) == chosen.end();
      }
    }
  }
  return counts;
}

}  // namespace

GroupShare share_of(comm::Communicator& ranks) {
  return {ranks.size(), ranks.rank(), [&ranks](const Tensor& bytes) {
            const Tensor all = at::empty({ranks.size(), bytes.numel()}, bytes.options());
            const comm::SendsFor purpose(TrafficPurpose::kBalance);
            ranks.all_gather(all, bytes).wait();
            return all;
          }};
}

BalanceCounts balance_share(const BalanceOptions& options, const GroupShare& share, const Tensor& ids_TK,
                            const Tensor& scores_TK, int64_t num_experts) {
  const int64_t tokens = ids_TK.size(0), k = ids_TK.size(1);
  const Tensor before = ids_TK.clone();
  if (options.kind == Balance::kForcedUniform) {
    force_uniform(span_of<int64_t>(ids_TK), k, num_experts, share.index * tokens);
  } else if (options.kind != Balance::kNone) {
    const bool by_score = options.needs_scores();
    ATHANOR_ASSERT(num_experts <= std::numeric_limits<int32_t>::max());  // ids are sent as int32
    Tensor mine = bytes_of(ids_TK.to(at::kInt));
    if (by_score) mine = at::cat({mine, bytes_of(scores_TK)});
    const Tensor all = share.gather(mine);
    ATHANOR_ASSERT(all.size(0) == share.ranks && all.size(1) == mine.numel());
    const auto part = [&](int64_t index, at::ScalarType type) {  // flat: empty rows cannot be viewed as integers
      return all.narrow(1, index * tokens * k * 4, tokens * k * 4).reshape({-1}).view(type);
    };
    const Tensor ids = part(0, at::kInt).to(at::kLong);
    const Tensor scores = by_score ? part(1, at::kFloat) : Tensor();
    balance_group(options, span_of<int64_t>(ids), by_score ? span_of<float>(scores) : std::span<float>(), k,
                  num_experts);
    ids_TK.copy_(ids.narrow(0, share.index * tokens * k, tokens * k).view({tokens, k}));
  }
  return count_changes(span_of<int64_t>(before), span_of<int64_t>(ids_TK), static_cast<size_t>(k));
}

}  // namespace athanor::moe
