#include "ops/tree_attention.h"

#include <algorithm>

#include "ops/attention.h"
#include "ops/testing/attention_reference.h"
#include "ops/testing/op_testing.h"
#include "ops/tiles.h"

namespace athanor::ops::tree_attention_test {
namespace {

using namespace test;

struct Case {
  int64_t heads, kv_heads, head_dim;
  std::vector<TokenTree::Node> nodes;

  Tensor inputs(int64_t num_heads, uint64_t seed, at::ScalarType dtype) const {
    return normal({1, nodes.back().end, num_heads, head_dim}, seed, dtype);
  }
  std::vector<Tensor> qkv(at::ScalarType dtype) const {
    return {inputs(heads, 1, dtype), inputs(kv_heads, 2, dtype), inputs(kv_heads, 3, dtype)};
  }
};

// A context of more than one block of keys (384) with questions below it that have answers, a chain of nodes, roots
// side by side, nodes of one token, and nodes that end within tiles of rows and of keys.
std::vector<Case> cases() {
  return {{1, 1, 8, {{0, 1, -1}}},
          {2, 1, 16, {{0, 5, -1}, {5, 6, 0}, {6, 20, 0}}},
          {4, 2, 32, {{0, 400, -1}, {400, 490, 0}, {490, 491, 1}, {491, 505, 1}, {505, 530, 0}, {530, 543, 4}}},
          {2, 2, 34, {{0, 33, -1}, {33, 64, 0}, {64, 100, 1}, {100, 112, 2}, {112, 113, 3}}},
          {1, 1, 16, {{0, 40, -1}, {40, 97, -1}, {97, 98, -1}, {98, 200, 2}}}};
}

// The nodes of the text that ends with node n.
std::vector<int64_t> text_of(const Case& c, int64_t n) {
  std::vector<int64_t> text;
  for (; n >= 0; n = c.nodes[static_cast<size_t>(n)].parent) text.insert(text.begin(), n);
  return text;
}

Tensor rows_of_text(const Case& c, const Tensor& x, int64_t n) {
  std::vector<Tensor> parts;
  for (const int64_t node : text_of(c, n)) {
    const auto [begin, end, parent] = c.nodes[static_cast<size_t>(node)];
    parts.push_back(x.narrow(1, begin, end - begin));
  }
  return at::cat(parts, 1);
}

Tensor causal(int64_t tokens) { return at::ones({tokens, tokens}, at::kDouble).tril().view({1, 1, tokens, tokens}); }

bool is_leaf(const Case& c, int64_t n) {
  return std::ranges::none_of(c.nodes, [n](const TokenTree::Node& other) { return other.parent == n; });
}

// A text with the attention that it has by itself.
struct Text {
  int64_t number;  // the number of its case
  int64_t last_node;
  at::ScalarType dtype;
  Tracked y;
};

// Two tests use them. Of the long case only the texts that end with a leaf: the others are the beginnings of these,
// with as many blocks of tokens, so that the bounds of their rows are the same.
const std::vector<Text>& all_texts() {
  static const std::vector<Text> texts = [] {
    std::vector<Text> made;
    const std::vector<Case> all = cases();
    for (const auto dtype : kComputeTypes) {
      for (size_t i = 0; i < all.size(); ++i) {
        const auto in = all[i].qkv(dtype);
        for (int64_t n = 0; n < std::ssize(all[i].nodes); ++n) {
          if (all[i].nodes.size() > 5 && !is_leaf(all[i], n)) continue;
          const auto of = [&](const Tensor& x) { return rows_of_text(all[i], x, n); };
          const Tensor q = of(in[0]);
          const Tracked y = attention_forward(q, of(in[1]), of(in[2]), causal(q.size(1))).y;
          made.push_back({static_cast<int64_t>(i), n, dtype, swapped(y, 1, 2)});
        }
      }
    }
    return made;
  }();
  return texts;
}

using Form = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const TokenTree&, const AttentionOptions&);

// Each text of the tree has the attention that it has by itself.
void expect_each_text_within_bounds(Form form, const std::string& name) {
  const std::vector<Case> all = cases();
  for (const auto dtype : kComputeTypes) {
    for (size_t i = 0; i < all.size(); ++i) {
      const auto in = all[i].qkv(dtype);
      const Tensor y = form(in[0], in[1], in[2], make_tree(all[i].nodes), {});
      for (const Text& text : all_texts()) {
        if (text.number != static_cast<int64_t>(i) || text.dtype != dtype) continue;
        expect_within(
            rows_of_text(all[i], y, text.last_node), text.y,
            fmt::format("{}: text {} of {} nodes, {}", name, text.last_node, all[i].nodes.size(), name_of(dtype)));
      }
    }
  }
}

TEST(TreeAttention, GivesEachTextTheAttentionThatItHasByItself) {
  expect_each_text_within_bounds(tree_attention, "op");
}

TEST(TreeAttention, PortableFormIsWithinTheSameBounds) {
  expect_each_text_within_bounds(portable::tree_attention, "portable");
}

// A text's attention with a window is compared in float64, where both forms are dense.
TEST(TreeAttention, AWindowCountsTheTokensOfATextAcrossItsNodesAlsoWithASoftCapOrSinks) {
  for (const Case& c : cases()) {
    std::vector<Tensor> in;
    for (const Tensor& x : c.qkv(at::kFloat)) in.push_back(x.to(at::kDouble));
    const Weight sinks{normal({in[0].size(2)}, 4), {}};
    for (const AttentionOptions& options : std::vector<AttentionOptions>{{.window = 1},
                                                                         {.window = 20},
                                                                         {.window = 1000},
                                                                         {.window = 20, .scale = 0.3, .soft_cap = 0.7},
                                                                         {.soft_cap = 0.7},
                                                                         {.sinks = sinks},
                                                                         {.window = 20, .sinks = sinks}}) {
      const TokenTree tree = make_tree(c.nodes);  // which keeps the mask of one window
      const Tensor y = portable::tree_attention(in[0], in[1], in[2], tree, options),
                   op = tree_attention(in[0].to(at::kFloat), in[1].to(at::kFloat), in[2].to(at::kFloat), tree, options);
      EXPECT_TRUE(at::allclose(op, y.to(at::kFloat), 0, 1e-5)) << options.window;
      for (int64_t n = 0; n < std::ssize(c.nodes); ++n) {
        const auto of = [&](const Tensor& x) { return rows_of_text(c, x, n); };
        EXPECT_TRUE(at::allclose(of(y), portable::attention(of(in[0]), of(in[1]), of(in[2]), {}, options), 0, 1e-5))
            << "text " << n << ", window " << options.window << ", cap " << options.soft_cap;
      }
    }
  }
}

TEST(TreeAttention, OfOneNodeHasTheBitsOfCausalAttention) {
  const at::NoGradGuard no_grad;
  for (const auto dtype : kComputeTypes) {
    const Case c{4, 2, 32, {{0, 130, -1}, {130, 400, -1}}};
    const auto in = c.qkv(dtype);
    if (!multiplies_on_tiles(in[0], ProductKind::kAttention)) continue;  // libtorch takes a mask or none
    expect_same_bits(tree_attention(in[0], in[1], in[2], make_tree(c.nodes)),
                     attention(in[0], in[1], in[2], {{130, 270}}), name_of(dtype));
  }
}

TEST(TreeAttention, ATextDoesNotDependOnItsNeighbours) {
  for (const auto dtype : kComputeTypes) {
    const Case c = cases()[2];
    auto in = c.qkv(dtype);
    const Tensor before = tree_attention(in[0], in[1], in[2], make_tree(c.nodes));
    for (Tensor& x : in) (x = x.clone()).narrow(1, 505, 38).fill_(7);
    const Tensor after = tree_attention(in[0], in[1], in[2], make_tree(c.nodes));
    expect_same_bits(after.narrow(1, 0, 505), before.narrow(1, 0, 505), name_of(dtype));
  }
}

TEST(TreeAttention, HasTheSameBitsWithAnyNumberOfThreads) {
  for (const auto dtype : kComputeTypes) {
    const Case c = cases()[2];
    const auto in = c.qkv(dtype);
    const auto with = [&](int threads) {
      const Threads some(threads);
      return tree_attention(in[0], in[1], in[2], make_tree(c.nodes));
    };
    expect_same_bits(with(2), with(1), name_of(dtype));
  }
}

TEST(TokenTree, CountsPositionsFromTheBeginningOfATextAndMasksTheRest) {
  const TokenTree tree = make_tree({{0, 2, -1}, {2, 3, 0}, {3, 5, 0}, {5, 6, 2}});
  const auto* position = tree.positions.const_data_ptr<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(position, position + 6), (std::vector<int64_t>{0, 1, 2, 2, 3, 4}));
  const Tensor expected = at::tensor(
      {1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1},
      at::kInt);
  EXPECT_TRUE(at::equal(tree_mask(tree).to(at::kInt).view({36}), expected));
}

}  // namespace
}  // namespace athanor::ops::tree_attention_test
