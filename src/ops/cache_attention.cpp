#include "ops/cache_attention.h"

#include <algorithm>

#include "kernels/cache_attention.h"
#include "ops/attention_spans.h"
#include "ops/device.h"
#include "ops/taken_in_turn.h"

namespace athanor::ops {
namespace {

template <class T>
void attend_on_host(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                    const AttentionOptions& options, const Tensor& out) {
  const int64_t kv_heads = k.size(2), head_dim = q.size(2), group = q.size(1) / kv_heads, ld = kv_heads * head_dim;
  const int64_t pieces = q.size(0) * kv_heads;
  const Tensor scratch =
      at::empty({num_slots(pieces), kernels::cache_attention_scratch(counts.most(), group, head_dim)},
                q.options().dtype(at::kFloat));
  const Tensor sinks = sinks_of(options);
  const auto *keys = pointer<T>(k), *values = pointer<T>(v), *queries = pointer<T>(q);
  for_each_in_turn(pieces, [&](int64_t i, int64_t slot) {
    const int64_t row = i / kv_heads, head = i % kv_heads;
    const auto r = static_cast<size_t>(row);
    const int64_t first = (row * k.size(1) + counts.first(r)) * ld + head * head_dim;
    const kernels::CachedHead<T> cached{keys + first, values + first, ld, counts.of_row[r] - counts.first(r)};
    const int64_t at = (row * kv_heads + head) * group * head_dim;
    kernels::cache_attention(cached, queries + at, pointer<T>(out) + at, group, head_dim,
                             static_cast<float>(options.scale_of(q)), static_cast<float>(options.soft_cap),
                             sinks.defined() ? pointer<float>(sinks) + head * group : nullptr,
                             scratch.data_ptr<float>() + slot * scratch.size(1));
  });
}

}  // namespace

int64_t KeyCounts::most() const { return of_row.empty() ? 0 : *std::ranges::max_element(of_row); }

Tensor keys_seen(const Tensor& positions, int64_t most, int64_t window) {
  const Tensor key = at::arange(most, positions.options()), query = positions.unsqueeze(1);
  Tensor seen = key <= query;
  if (window > 0) seen = seen.logical_and(key > query - window);
  return seen.view({-1, 1, 1, most});
}

KeyCounts with_keys_seen(KeyCounts counts, const Tensor& positions) {
  if (device::takes(positions) && !counts.of_row.empty())
    counts.seen = keys_seen(positions, counts.most(), counts.window);
  return counts;
}

Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                       const AttentionOptions& options) {
  ATHANOR_ASSERT(static_cast<int64_t>(counts.of_row.size()) == q.size(0) && q.size(0) <= k.size(0));
  ATHANOR_ASSERT(counts.most() <= k.size(1));
  if (device::takes(q)) return device::cache_attention(q, k, v, counts, options);
  const Tensor out = at::empty(q.sizes(), q.options());
  with_element(
      q, [&](auto* tag) { attend_on_host<std::decay_t<decltype(*tag)>>(q.contiguous(), k, v, counts, options, out); });
  return out;
}

namespace portable {

Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                       const AttentionOptions& options) {
  const int64_t group = q.size(1) / k.size(2);
  std::vector<Tensor> rows;
  for (int64_t r = 0; r < q.size(0); ++r) {
    const auto row = static_cast<size_t>(r);
    const int64_t first = counts.first(row), count = counts.of_row[row] - first;
    const auto heads_first = [&](const Tensor& x) {
      return x[r].narrow(0, first, count).repeat_interleave(group, 1).transpose(0, 1);
    };
    const Tensor seen = at::ones({1, count}, q.options().dtype(at::kBool));
    rows.push_back(attention_in_steps(q[r].unsqueeze(1), heads_first(k), heads_first(v), seen, options).squeeze(1));
  }
  return at::stack(rows);
}

}  // namespace portable
}  // namespace athanor::ops
