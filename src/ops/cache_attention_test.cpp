#include "ops/cache_attention.h"

#include "ops/attention.h"
#include "ops/error_bound.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::cache_attention_test {
namespace {

using namespace athanor::ops::test;

struct Inputs {
  Tensor q, k, v;
  KeyCounts counts;
};

Inputs make_inputs(at::ScalarType dtype, std::vector<int64_t> counts, int64_t heads, int64_t kv_heads,
                   int64_t head_dim) {
  const auto rows = std::ssize(counts);
  const int64_t capacity = 3 + *std::ranges::max_element(counts);
  return {normal({rows, heads, head_dim}, 1, dtype),
          normal({rows + 1, capacity, kv_heads, head_dim}, 2, dtype),
          normal({rows + 1, capacity, kv_heads, head_dim}, 3, dtype),
          {std::move(counts)}};
}

// Scores are sums of head_dim products of normal numbers, so an error of head_dim · 2^-24 · their sizes, about head_dim
// · 2^-24 after the scale; the exponential makes it relative, its own error is 2 ULP, and sums of `most` weights and of
// as many weighted values follow. Values are normal numbers, rarely above 4.
double error_of(const Inputs& in) {
  const double terms = static_cast<double>(in.q.size(2) + 2 * in.counts.most()) + 8;
  const double rounding = in.q.scalar_type() == at::kFloat ? 0 : std::ldexp(1.0, -8);  // the result's
  return 4 * (4 * terms * std::ldexp(1.0, -24) + rounding);
}

TEST(CacheAttention, EqualsDenseScoresForRowsOfDifferentLengths) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{4, 2}, {3, 1}, {2, 2}}) {
      for (const int64_t window : {0, 1, 20}) {
        Inputs in = make_inputs(dtype, {7, 1, 300, 33}, heads, kv_heads, 20);
        in.counts.window = window;
        const Tensor expected =
            portable::cache_attention(in.q.to(at::kDouble), in.k.to(at::kDouble), in.v.to(at::kDouble), in.counts);
        const AttentionOptions capped{.scale = 0.3, .soft_cap = 0.7, .sinks = {normal({heads}, 4), {}}};
        const auto with_cap = [&](auto form, at::ScalarType type) {
          return form(in.q.to(type), in.k.to(type), in.v.to(type), in.counts, capped).to(at::kDouble);
        };
        EXPECT_LE((with_cap(cache_attention, dtype) - with_cap(portable::cache_attention, at::kDouble))
                      .abs()
                      .max()
                      .item<double>(),
                  error_of(in));
        const Tensor y = cache_attention(in.q, in.k, in.v, in.counts);
        EXPECT_LE((y.to(at::kDouble) - expected).abs().max().item<double>(), error_of(in))
            << name_of(dtype) << heads << " window " << window;
      }
    }
  }
}

TEST(CacheAttention, EqualsTheLastRowOfWholeAttention) {
  const Inputs in = make_inputs(at::kFloat, {33}, 4, 2, 16);
  const at::NoGradGuard no_grad;
  const Tensor k = in.k.narrow(0, 0, 1).narrow(1, 0, 33), v = in.v.narrow(0, 0, 1).narrow(1, 0, 33);
  const Tensor queries = normal({1, 33, 4, 16}, 9);
  queries.select(1, 32).copy_(in.q);
  for (const int64_t window : {0, 7}) {
    const KeyCounts counts{in.counts.of_row, window};
    const Tensor whole = attention(queries, k, v, {}, {window}).select(1, 32);
    EXPECT_LE((cache_attention(in.q, in.k, in.v, counts) - whole).abs().max().item<double>(), 2 * error_of(in));
    const AttentionOptions sinks{.window = window, .sinks = {normal({4}, 10), {}}};
    const Tensor with_sinks = attention(queries, k, v, {}, sinks).select(1, 32);
    EXPECT_LE((cache_attention(in.q, in.k, in.v, counts, sinks) - with_sinks).abs().max().item<double>(),
              2 * error_of(in));
    EXPECT_GT((with_sinks - whole).abs().max().item<double>(), 0.01);
  }
}

TEST(CacheAttention, NoBitsOfARowDependOnOtherRowsOrOnThreads) {
  for (const auto dtype : kComputeTypes) {
    const Inputs in = make_inputs(dtype, {7, 40, 12}, 4, 2, 20);
    const Tensor y = cache_attention(in.q, in.k, in.v, in.counts);
    for (int64_t r = 0; r < 3; ++r) {
      const Tensor alone = cache_attention(in.q.narrow(0, r, 1), in.k.narrow(0, r, 1), in.v.narrow(0, r, 1),
                                           {{in.counts.of_row[static_cast<size_t>(r)]}});
      EXPECT_TRUE(at::equal(alone[0], y[r])) << r;
    }
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    EXPECT_TRUE(at::equal(cache_attention(in.q, in.k, in.v, in.counts), y));
    at::set_num_threads(threads);
  }
}

TEST(CacheAttention, OfNoRowsIsEmpty) {
  const Tensor q = at::empty({0, 4, 8}), k = at::empty({2, 5, 2, 8});
  EXPECT_EQ(cache_attention(q, k, k, {}).sizes(), q.sizes());
}

TEST(CacheAttention, LargeScoresDoNotOverflow) {
  Inputs in = make_inputs(at::kFloat, {20}, 2, 1, 8);
  in.q.mul_(1e4);
  const Tensor y = cache_attention(in.q, in.k, in.v, in.counts);
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
}

}  // namespace
}  // namespace athanor::ops::cache_attention_test
