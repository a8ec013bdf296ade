#include "ops/attention_logits.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace athanor::attention_logits_test {
namespace {

// Dense logits with a mask.
Tensor expected_of(const Tensor& q, const Tensor& k, const ops::DocumentLengths& documents) {
  const int64_t batch = q.size(0), tokens = q.size(1), heads = q.size(2);
  Tensor allowed = at::ones({batch, tokens, tokens}, at::kBool).tril();
  for (size_t b = 0; b < documents.size(); ++b) {
    int64_t begin = 0;
    for (const int32_t length : documents[b]) {
      allowed[static_cast<int64_t>(b)]
          .narrow(0, begin + length, tokens - begin - length)
          .narrow(1, begin, length)
          .fill_(false);
      begin += length;
    }
  }
  const Tensor keys = k.to(at::kDouble).repeat_interleave(heads / k.size(2), 2);
  const Tensor logits =
      at::einsum("bqhd,bkhd->bhqk", {q.to(at::kDouble), keys}) / std::sqrt(static_cast<double>(q.size(3)));
  return logits.masked_fill(allowed.logical_not().unsqueeze(1), -std::numeric_limits<double>::infinity()).amax({2, 3});
}

TEST(AttentionLogits, TheLargestIsThatOfTheLogitsThatAttentionUses) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tokens : {1, 7, 64, 65, 200}) {
      const Tensor q = at::randn({2, tokens, 6, 8}).to(type), k = at::randn({2, tokens, 3, 8}).to(type);
      const auto third = static_cast<int32_t>(tokens / 3), rest = static_cast<int32_t>(tokens) - third;
      for (const ops::DocumentLengths& documents :
           {ops::DocumentLengths{}, ops::DocumentLengths{{third, rest}, {rest, third}}}) {
        const Tensor largest = ops::largest_attention_logits(q, k, documents), v = at::randn_like(k);
        EXPECT_EQ(largest.scalar_type(), at::kFloat);
        Tensor of_attention;
        const Tensor attended = ops::attention_with_logits(q, k, v, documents, of_attention);
        EXPECT_TRUE(at::equal(attended, ops::attention(q, k, v, documents)));
        EXPECT_TRUE(at::allclose(of_attention.to(at::kDouble), expected_of(q, k, documents), 0, 8 * 25 * 8 * 6e-8))
            << tokens;
        // A logit is a sum of 8 products of numbers of size 5.
        EXPECT_TRUE(at::allclose(largest.to(at::kDouble), expected_of(q, k, documents), 0, 8 * 25 * 8 * 6e-8))
            << tokens;
      }
    }
  }
}

TEST(AttentionLogits, WithThemAttentionHasItsGradient) {
  const auto leaf = [](int64_t heads) { return at::randn({1, 9, heads, 8}).requires_grad_(); };
  const Tensor q = leaf(4), k = leaf(2), v = leaf(2);
  Tensor largest;
  const Tensor y = ops::attention_with_logits(q, k, v, {}, largest);
  ASSERT_TRUE(y.requires_grad());
  EXPECT_FALSE(largest.requires_grad());
}

TEST(AttentionLogits, TokensAfterAQueryAndOtherDocumentsDoNotCount) {
  const Tensor q = at::ones({1, 4, 1, 1}), k = at::tensor({1.0, 2.0, 5.0, 3.0}, at::kFloat).view({1, 4, 1, 1});
  EXPECT_EQ(ops::largest_attention_logits(q, k)[0][0].item<float>(), 5);
  const Tensor early = at::tensor({1.0, 1.0, 0.0, 0.0}, at::kFloat).view({1, 4, 1, 1});
  EXPECT_EQ(ops::largest_attention_logits(early, k)[0][0].item<float>(), 2) << "the second query sees two keys";
  const Tensor late = at::tensor({0.0, 0.0, 0.0, 1.0}, at::kFloat).view({1, 4, 1, 1});
  EXPECT_EQ(ops::largest_attention_logits(late, k, {{3, 1}})[0][0].item<float>(), 3);
}

}  // namespace
}  // namespace athanor::attention_logits_test
