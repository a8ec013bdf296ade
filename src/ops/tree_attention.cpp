#include "ops/tree_attention.h"

#include <ATen/ATen.h>

#include "ops/attention_pieces.h"
#include "ops/attention_spans.h"
#include "ops/device.h"
#include "ops/transfer.h"

namespace athanor::ops {
namespace {

constexpr int64_t kQueries = 8 * kernels::kTileRows;  // in one piece of work

struct Piece {
  size_t node;
  int64_t begin;  // its first query, counted from the beginning of the node
};

std::vector<Piece> pieces_of(const TokenTree& tree) {
  std::vector<Piece> pieces;
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    for (int64_t begin = 0; begin < tree.nodes[n].end - tree.nodes[n].begin; begin += kQueries)
      pieces.push_back({n, begin});
  }
  return pieces;
}

// Returns the nodes above each node, from the root down.
std::vector<std::vector<int64_t>> ancestors_of(const TokenTree& tree) {
  std::vector<std::vector<int64_t>> above(tree.nodes.size());
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const int64_t parent = tree.nodes[n].parent;
    if (parent < 0) continue;
    above[n] = above[static_cast<size_t>(parent)];
    above[n].push_back(parent);
  }
  return above;
}

template <class T>
void attend_on_tiles(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                     const AttentionOptions& options, const Tensor& out) {
  std::vector<Run> runs;
  for (const auto& node : tree.nodes) runs.push_back({0, node.begin, node.end - node.begin});
  const PackedKeys<T> packed(k, v, runs);
  const auto pieces = pieces_of(tree);
  const auto above = ancestors_of(tree);
  const int64_t heads = q.size(2), kv_heads = k.size(2), num_pieces = static_cast<int64_t>(pieces.size());
  AttentionOptions whole = options;  // a window that hides tokens is not computed here
  whole.window = 0;
  const Tensor sinks = sinks_of(options);
  const Tensor logsumexp = at::empty({heads, q.size(1)}, q.options().dtype(at::kFloat));  // written, and not read
  const int64_t scratch_bytes = kernels::attention_forward_scratch<T>(shape_of(q, {0, 0, 0}));
  for_each_piece(q, num_pieces * heads, scratch_bytes, [&](int64_t i, void* scratch) {
    const int64_t head = i / num_pieces, kv_head = head / (heads / kv_heads);
    const Piece& piece = pieces[static_cast<size_t>(num_pieces - 1 - i % num_pieces)];
    const auto packed_of = [&](int64_t node) {
      const int64_t at = node * kv_heads + kv_head;
      return kernels::PackedHead{packed.keys(at), packed.values(at), runs[static_cast<size_t>(node)].length};
    };
    std::vector<kernels::PackedHead> before;
    for (const int64_t node : above[piece.node]) before.push_back(packed_of(node));
    const Run& run = runs[piece.node];
    const kernels::PackedHead own = packed_of(static_cast<int64_t>(piece.node));
    kernels::attention_forward<T>(
        shape_of(q, run, whole, sinks, head), rows_of<const T>(q, run, head), own.keys_transposed, own.values,
        rows_of<T>(out, run, head), logsumexp.data_ptr<float>() + head * logsumexp.size(1) + run.begin,
        /*largest=*/nullptr, piece.begin, std::min(run.length, piece.begin + kQueries), scratch, before);
  });
}

// [1, N, heads, D] → [1, heads, N, D], each key head repeated for the queries that read it.
Tensor heads_first(const Tensor& x, int64_t heads) {
  const Tensor wide = x.size(2) == heads ? x : x.repeat_interleave(heads / x.size(2), 2);
  return with_dense_heads(wide).transpose(1, 2);
}

bool runs_on_tiles(const Tensor& q) { return q.is_cpu() && multiplies_on_tiles(q, ProductKind::kAttention); }

}  // namespace

TokenTree make_tree(std::vector<TokenTree::Node> nodes) {
  TokenTree tree;
  tree.nodes = std::move(nodes);
  tree.positions = at::empty({1, tree.num_tokens()}, at::kLong);
  auto* position = tree.positions.data_ptr<int64_t>();
  int64_t end = 0;
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const auto [first, last, parent] = tree.nodes[n];
    ATHANOR_ASSERT(first == end && last > first && parent < static_cast<int64_t>(n));
    const int64_t before = parent < 0 ? 0 : position[tree.nodes[static_cast<size_t>(parent)].end - 1] + 1;
    for (int64_t i = first; i < last; ++i) position[i] = before + i - first;
    end = last;
  }
  return tree;
}

Tensor tree_mask(const TokenTree& tree, int64_t window) {
  const int64_t tokens = tree.num_tokens();
  Tensor mask = at::zeros({1, 1, tokens, tokens}, at::kBool);
  const auto above = ancestors_of(tree);
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const auto& node = tree.nodes[n];
    const int64_t length = node.end - node.begin;
    const Tensor rows = mask[0][0].narrow(0, node.begin, length);
    for (const int64_t a : above[n]) {
      const auto& seen = tree.nodes[static_cast<size_t>(a)];
      rows.narrow(1, seen.begin, seen.end - seen.begin).fill_(true);
    }
    rows.narrow(1, node.begin, length).copy_(at::ones({length, length}, at::kBool).tril());
  }
  if (window > 0) {
    const Tensor position = tree.positions.view({-1});
    mask.logical_and_(position.unsqueeze(0) > position.unsqueeze(1) - window);
  }
  return mask;
}

TokenTree with_mask(TokenTree tree, at::Device device) {
  if (!device.is_cpu()) tree.mask = send(tree_mask(tree), device);
  return tree;
}

Tensor tree_attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                      const AttentionOptions& options) {
  const int64_t window = options.window;
  const at::NoGradGuard no_grad;
  ATHANOR_ASSERT(q.size(0) == 1 && q.size(1) == tree.num_tokens());
  const bool hides = window > 0 && tree.num_tokens() > 0 && tree.positions.max().item<int64_t>() >= window;
  if (runs_on_tiles(q) && !hides) {
    const Tensor out = at::empty(q.sizes(), q.options());
    const Tensor dense_q = with_dense_heads(q), dense_k = with_dense_heads(k), dense_v = with_dense_heads(v);
    with_element(q, [&](auto* tag) {
      attend_on_tiles<std::decay_t<decltype(*tag)>>(dense_q, dense_k, dense_v, tree, options, out);
    });
    return out;
  }
  if (hides && !tree.mask_in_window.defined()) tree.mask_in_window = send(tree_mask(tree, window), q.device());
  const Tensor mask = hides ? tree.mask_in_window : tree.mask.defined() ? tree.mask : tree_mask(tree).to(q.device());
  const int64_t heads = q.size(2);
  const Tensor queries = heads_first(q, heads), keys = heads_first(k, heads), values = heads_first(v, heads);
  const Tensor attended = options.needs_steps()
                              ? attention_in_steps(queries, keys, values, mask, options)
                              : at::scaled_dot_product_attention(queries, keys, values, mask, 0.0, /*is_causal=*/false,
                                                                 options.given_scale());
  return attended.transpose(1, 2).contiguous();
}

namespace portable {

Tensor tree_attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                      const AttentionOptions& options) {
  const auto all = [&](const Tensor& x) { return heads_first(x, q.size(2)); };
  return attention_in_steps(all(q), all(k), all(v), tree_mask(tree, options.window), options).transpose(1, 2);
}

}  // namespace portable

}  // namespace athanor::ops
