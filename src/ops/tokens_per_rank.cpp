#include "ops/tokens_per_rank.h"

#include <utility>
#include <vector>

#include "ops/played.h"

namespace athanor::ops {
namespace {

void count_on_host(const int64_t* id, int64_t tokens, int64_t k, int64_t experts_per_rank, int64_t num_ranks,
                   int64_t* count) {
  std::vector<int64_t> last_token(static_cast<size_t>(num_ranks), -1);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j, ++id) {
      const int64_t rank = *id < 0 ? num_ranks : *id / experts_per_rank;
      if (rank >= num_ranks || std::exchange(last_token[static_cast<size_t>(rank)], t) == t) continue;
      ++count[rank];
    }
  }
}

// Choices that go nowhere are counted in a column before those of the ranks, or in one after them.
Tensor count_there(const Tensor& ids, int64_t experts_per_rank, int64_t num_ranks) {
  const Tensor rank = ids.clamp(-experts_per_rank, experts_per_rank * num_ranks).div_(experts_per_rank, "floor");
  auto shape = ids.sizes().vec();
  shape.back() = num_ranks + 2;
  const Tensor goes = at::zeros(shape, ids.options()).scatter_(-1, rank.add_(1), 1);
  return goes.narrow(-1, 1, num_ranks).sum(-2);
}

}  // namespace

Tensor tokens_per_rank(const Tensor& expert_ids_TK, int64_t experts_per_rank, int64_t num_ranks) {
  if (!on_host(expert_ids_TK)) return count_there(expert_ids_TK, experts_per_rank, num_ranks);
  const Tensor ids = expert_ids_TK.contiguous();
  const int64_t k = ids.size(-1), tokens = ids.size(-2);
  auto shape = ids.sizes().vec();
  shape.pop_back();
  shape.back() = num_ranks;
  const Tensor counts = at::zeros(shape, ids.options());
  if (played("tokens_per_rank", {ids}, {counts})) return counts;
  for (int64_t layer = 0; layer < num_rows(counts); ++layer) {
    count_on_host(pointer<int64_t>(ids) + layer * tokens * k, tokens, k, experts_per_rank, num_ranks,
                  counts.data_ptr<int64_t>() + layer * num_ranks);
  }
  return counts;
}

}  // namespace athanor::ops
