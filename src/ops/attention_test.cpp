// Shapes: B sequences, T tokens, H heads, D of each head.

#include "ops/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "ops/testing/attention_reference.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::attention_test {
namespace {

using namespace test;

struct Case {
  int64_t sequences, tokens, heads, kv_heads, head_dim;
  DocumentLengths documents;
  AttentionOptions options = {};
  bool has_sinks = false;

  // With sinks of this type, whose bucket is empty.
  AttentionOptions options_in(at::ScalarType dtype) const {
    AttentionOptions all = options;
    if (has_sinks) all.sinks = weight_of(normal({heads}, 5, dtype));
    return all;
  }
  Tensor inputs(int64_t num_heads, uint64_t seed, at::ScalarType dtype) const {
    return normal({sequences, tokens, num_heads, head_dim}, seed, dtype);
  }
  std::vector<Tensor> qkv(at::ScalarType dtype) const {
    return {inputs(heads, 1, dtype), inputs(kv_heads, 2, dtype), inputs(kv_heads, 3, dtype)};
  }
  Tensor dy(at::ScalarType dtype) const { return inputs(heads, 4, dtype); }
  std::string name(at::ScalarType dtype) const {
    return fmt::format("{}x{} tokens, {} heads ({}) of {}{}, window {}, {}", sequences, tokens, heads, kv_heads,
                       head_dim, documents.empty() ? "" : " in documents", options.window, name_of(dtype)) +
           fmt::format(", scale {}, cap {}{}", options.scale, options.soft_cap, has_sinks ? ", sinks" : "");
  }
};

std::vector<Case> cases() {
  return {{1, 1, 1, 1, 1, {}},
          {2, 7, 2, 2, 3, {}},
          {1, 17, 3, 1, 8, {}},
          {2, 40, 4, 2, 16, {}},
          {1, 130, 2, 2, 64, {}},
          {1, 600, 1, 1, 16, {}},  // more than one block of keys
          {1, 203, 4, 2, 34, {}},  // blocks of queries and keys, shared by heads
          {1, 9, 2, 2, 5, {{9}}},
          {2, 12, 2, 1, 8, {{5, 7}, {1, 1, 10}}},
          {1, 66, 2, 2, 16, {{0, 33, 1, 0, 32, 0}}},
          {1, 50, 1, 1, 8, {}, {.window = 1}},
          {2, 12, 2, 1, 8, {{5, 7}, {1, 1, 10}}, {.window = 4}},
          {1, 203, 4, 2, 34, {}, {.window = 20}},   // blocks of queries that see parts of two blocks of keys
          {1, 600, 2, 1, 16, {}, {.window = 130}},  // blocks of keys that some queries do not see
          {1, 900, 2, 1, 16, {}, {.window = 374}},  // two rounds of keys, the second with queries that see none of it
          {1, 130, 2, 2, 64, {}, {.scale = 0.3}},
          {1, 203, 4, 2, 34, {}, {.window = 20, .soft_cap = 2}},
          {2, 12, 2, 1, 8, {{5, 7}, {1, 1, 10}}, {.scale = 0.5, .soft_cap = 0.7}},
          {1, 1, 2, 1, 3, {}, {}, true},
          {2, 12, 4, 2, 8, {{5, 7}, {1, 1, 10}}, {}, true},
          {1, 600, 2, 1, 16, {}, {.window = 130}, true},
          {1, 130, 2, 2, 64, {}, {.soft_cap = 2}, true}};
}

// 1 if a token may attend: to itself and to earlier tokens, in its document and window.
Tensor mask_of(const Case& c) {
  Tensor mask = at::zeros({c.sequences, 1, c.tokens, c.tokens}, at::kDouble);
  for (int64_t b = 0; b < c.sequences; ++b) {
    const std::vector<int32_t> whole = {static_cast<int32_t>(c.tokens)};
    int64_t begin = 0;
    for (const int64_t length : c.documents.empty() ? whole : c.documents[b]) {
      for (int64_t t = begin; t < begin + length; ++t) {
        const int64_t first = c.options.window > 0 ? std::max(begin, t + 1 - c.options.window) : begin;
        mask[b][0][t].narrow(0, first, t - first + 1).fill_(1);
      }
      begin += length;
    }
  }
  return mask;
}

// Three tests compare with the reference of a case, which is computed once.
const AttentionReference& reference(const Case& c, at::ScalarType dtype) {
  static std::map<std::string, AttentionReference> made;
  const std::string key = c.name(dtype);
  if (!made.contains(key)) {
    const auto in = c.qkv(dtype);
    made.emplace(key, attention_reference(in[0], in[1], in[2], c.dy(dtype), mask_of(c), c.options_in(dtype)));
  }
  return made.at(key);
}

// The gradients are those of q, k and v, and of the sinks if there are any.
template <class F>
Outcome run_with_sinks(const Case& c, at::ScalarType dtype, F f) {
  const AttentionOptions options = c.options_in(dtype);
  Outcome outcome =
      run([&](const auto& in) { return f(in[0], in[1], in[2], c.documents, options); }, c.qkv(dtype), c.dy(dtype));
  if (c.has_sinks) outcome.dx.push_back(options.sinks.grad);
  return outcome;
}

Outcome run_case(const Case& c, at::ScalarType dtype) {
  return run_with_sinks(c, dtype, [](const auto&... arguments) { return attention(arguments...); });
}

void expect_all_within(const Outcome& actual, const Case& c, at::ScalarType dtype) {
  const auto& [y, dq, dk, dv, dsinks] = reference(c, dtype);
  expect_within(actual.y, y, c.name(dtype) + " y");
  expect_within(actual.dx[0], dq, c.name(dtype) + " dq");
  expect_within(actual.dx[1], dk, c.name(dtype) + " dk");
  expect_within(actual.dx[2], dv, c.name(dtype) + " dv");
  if (c.has_sinks) expect_within(actual.dx[3], dsinks, c.name(dtype) + " gradient of the sinks");
}

TEST(Attention, ForwardAndThreeGradientsAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const Case& c : cases()) {
      expect_all_within(run_case(c, dtype), c, dtype);
      const auto in = c.qkv(dtype);
      expect_within(portable::attention(in[0], in[1], in[2], c.documents, c.options_in(dtype)), reference(c, dtype).y,
                    c.name(dtype) + " portable y");
    }
  }
}

TEST(Attention, OfTheLibraryIsWithinTheSameBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const Case& c : cases()) {
      const auto f = [](const auto&... arguments) { return library::attention(arguments...); };
      expect_all_within(run_with_sinks(c, dtype, f), c, dtype);
    }
  }
}

TEST(Attention, PortableFormAgreesWithTheFormulaInFp64) {
  for (const Case& c : cases()) {
    auto inputs = c.qkv(at::kFloat);
    AttentionOptions options = c.options_in(at::kFloat);
    if (c.has_sinks) inputs.push_back(options.sinks.value);
    const auto f = [&](const auto& in) {
      if (c.has_sinks) options.sinks.value = in[3];
      return portable::attention(in[0], in[1], in[2], c.documents, options);
    };
    const Outcome oracle = run_fp64(f, inputs, c.dy(at::kFloat));
    const auto& [y, dq, dk, dv, dsinks] = reference(c, at::kFloat);
    expect_same_formula(oracle.y, y, c.name(at::kFloat) + " y");
    expect_same_formula(oracle.dx[0], dq, c.name(at::kFloat) + " dq");
    expect_same_formula(oracle.dx[1], dk, c.name(at::kFloat) + " dk");
    expect_same_formula(oracle.dx[2], dv, c.name(at::kFloat) + " dv");
    if (c.has_sinks) expect_same_formula(oracle.dx[3], dsinks, c.name(at::kFloat) + " gradient of the sinks");
  }
}

TEST(Attention, InsideDocumentsEqualsEachDocumentAloneBitForBit) {
  for (const auto dtype : kComputeTypes) {
    const Case both{2, 100, 4, 2, 32, {{37, 63}, {1, 50, 49}}};
    const auto in = both.qkv(dtype);
    const Outcome together = run_case(both, dtype);
    for (int64_t b = 0; b < 2; ++b) {
      int64_t begin = 0;
      for (const int64_t length : both.documents[b]) {
        const auto cut = [&](const Tensor& x) { return x.narrow(0, b, 1).narrow(1, begin, length).contiguous(); };
        const Outcome alone = run([](const auto& x) { return attention(x[0], x[1], x[2]); },
                                  {cut(in[0]), cut(in[1]), cut(in[2])}, cut(both.dy(dtype)));
        const auto name = fmt::format("{} from {} of {}: ", length, begin, b) + name_of(dtype);
        expect_same_bits(cut(together.y), alone.y, name + " y");
        for (size_t i = 0; i < 3; ++i) expect_same_bits(cut(together.dx[i]), alone.dx[i], name + " gradient");
        begin += length;
      }
    }
  }
}

TEST(Attention, ATokenSeesNothingOfLaterTokensOrOtherDocuments) {
  const Case c{1, 20, 2, 2, 8, {{8, 12}}};
  auto in = c.qkv(at::kFloat);
  const at::NoGradGuard no_grad;
  const Tensor before = attention(in[0], in[1], in[2], c.documents);
  for (const int64_t changed : {3, 15}) {
    auto other = in;
    for (Tensor& x : other) (x = x.clone()).select(1, changed).fill_(100);
    const Tensor after = attention(other[0], other[1], other[2], c.documents);
    const int64_t end = changed < 8 ? 8 : 20;
    expect_same_bits(after.narrow(1, 0, changed), before.narrow(1, 0, changed), "before");
    expect_same_bits(after.narrow(1, end, 20 - end), before.narrow(1, end, 20 - end), "the next document");
    EXPECT_FALSE(at::equal(after.narrow(1, changed, 1), before.narrow(1, changed, 1)));
  }
}

TEST(Attention, AWindowHidesWhatIsBeforeItAndOneOfAllTokensHidesNothing) {
  for (const auto dtype : kComputeTypes) {
    const Case c{1, 150, 2, 1, 16, {}, {.window = 100}}, whole{1, 150, 2, 1, 16, {}, {.window = 150}};
    auto in = c.qkv(dtype);
    const at::NoGradGuard no_grad;
    const Tensor before = attention(in[0], in[1], in[2], {}, c.options);
    for (size_t i : {1, 2}) (in[i] = in[i].clone()).narrow(1, 0, 30).fill_(100);
    const Tensor after = attention(in[0], in[1], in[2], {}, c.options);
    expect_same_bits(after.narrow(1, 129, 21), before.narrow(1, 129, 21), "from the first that does not see token 29");
    EXPECT_FALSE(at::equal(after.select(1, 128), before.select(1, 128)));
    expect_same_bits(attention(in[0], in[1], in[2], {}, whole.options), attention(in[0], in[1], in[2]), "whole");
  }
}

TEST(Attention, TwoRunsGiveTheSameBitsWithAnyThreads) {
  for (const auto dtype : kComputeTypes) {
    const Case c{2, 150, 4, 2, 32, {{100, 50}, {150}}};
    const auto with = [&](int threads) {
      const Threads some(threads);
      return run_case(c, dtype);
    };
    const Outcome one = with(1);
    for (const int threads : {1, 2}) {
      const Outcome again = with(threads);
      expect_same_bits(again.y, one.y, "y");
      for (size_t i = 0; i < 3; ++i) expect_same_bits(again.dx[i], one.dx[i], fmt::format("gradient {}", i));
    }
  }
}

TEST(Attention, OfNoTokensIsEmpty) {
  for (const Case& c : {Case{0, 5, 2, 1, 8, {}}, Case{2, 0, 2, 1, 8, {}}, Case{2, 0, 2, 1, 8, {{}, {0}}}}) {
    const Outcome fast = run_case(c, at::kFloat);
    EXPECT_EQ(fast.y.sizes(), c.inputs(2, 1, at::kFloat).sizes());
    EXPECT_EQ(fast.dx[1].sizes(), c.inputs(1, 1, at::kFloat).sizes());
  }
}

TEST(Attention, TakesAnyStrides) {
  const Case c{2, 20, 2, 2, 8, {}};
  const auto in = c.qkv(at::kFloat);
  const at::NoGradGuard no_grad;
  const Tensor y = attention(in[0], in[1], in[2]);
  const auto inside_out = [](const Tensor& x) { return x.transpose(1, 3).contiguous().transpose(1, 3); };
  expect_same_bits(attention(inside_out(in[0]), inside_out(in[1]), inside_out(in[2])), y, "y");
}

TEST(Attention, RefusesDocumentsThatDoNotFillTheSequence) {
  const auto in = Case{1, 6, 1, 1, 4, {}}.qkv(at::kFloat);
  EXPECT_THROW(attention(in[0], in[1], in[2], {{5}}), Error);
  EXPECT_THROW(attention(in[0], in[1], in[2], {{3}, {3}}), Error);
}

// Dense logits with a mask.
Tensor expected_of(const Tensor& q, const Tensor& k, const ops::DocumentLengths& documents, int64_t window) {
  const int64_t batch = q.size(0), tokens = q.size(1), heads = q.size(2);
  Tensor allowed = at::ones({batch, tokens, tokens}, at::kBool).tril().triu(1 - window);
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
      for (const auto& [documents, window] :
           {std::pair<ops::DocumentLengths, int64_t>{{}, tokens}, {{{third, rest}, {rest, third}}, tokens}, {{}, 5}}) {
        const AttentionOptions options{window};
        const Tensor expected = expected_of(q, k, documents, window);
        const Tensor largest = ops::largest_attention_logits(q, k, documents, options), v = at::randn_like(k);
        EXPECT_EQ(largest.scalar_type(), at::kFloat);
        Tensor of_attention;
        const Tensor attended = ops::attention_with_logits(q, k, v, documents, of_attention, options);
        EXPECT_TRUE(at::equal(attended, ops::attention(q, k, v, documents, options)));
        EXPECT_TRUE(at::allclose(of_attention.to(at::kDouble), expected, 0, 8 * 25 * 8 * 6e-8)) << tokens;
        // A logit is a sum of 8 products of numbers of size 5.
        EXPECT_TRUE(at::allclose(largest.to(at::kDouble), expected, 0, 8 * 25 * 8 * 6e-8)) << tokens;
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

}  // namespace athanor::ops::attention_test
