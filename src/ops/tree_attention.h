#pragma once
// Attention over texts with common beginnings, each token of which is computed once: for evaluation, whose requests
// share contexts.
//
// The tokens of several texts form a forest. A node is a range of consecutive tokens; a text is the tokens of the nodes
// on the way from a root to some node. A token attends to the tokens before it in its node, to itself, and to all
// tokens of the nodes above. So a batch needs no padding, and its attention weights are those of every text by itself.
// (SGLang's RadixAttention shares prefixes between requests over time; here all texts of a batch are known before.)

#include <vector>

#include "ops/attention.h"

namespace athanor::ops {

struct TokenTree {
  struct Node {
    int64_t begin, end;   ///< its tokens; the nodes' ranges follow one another and are not empty
    int64_t parent = -1;  ///< index of the node above, which comes before; −1: a text begins here
  };
  std::vector<Node> nodes;
  Tensor positions;  ///< [1, N] int64 on the host: the position of each token in its texts, from 0
  Tensor mask;       ///< on a device, [1, 1, N, N] bool there: which tokens (last dim) each token attends to
  /// The same in the model's window, on its device; made by the first layer whose window hides tokens, for all of them.
  mutable Tensor mask_in_window = {};

  int64_t num_tokens() const { return nodes.empty() ? 0 : nodes.back().end; }
};

/// Asserts that the nodes are as TokenTree describes, and sets the positions.
TokenTree make_tree(std::vector<TokenTree::Node> nodes);
/// Returns the mask of a tree, on the host.
/// @param window  tokens that a token attends to, itself and the last ones above it; 0: all of them.
Tensor tree_mask(const TokenTree& tree, int64_t window = 0);
/// Returns the tree with its mask on `device`, if attention there needs one. N² bytes are sent.
TokenTree with_mask(TokenTree tree, at::Device device);

/// q [1, N, heads, head_dim]; k, v [1, N, kv_heads, head_dim] → [1, N, heads, head_dim], without autograd. On our tiles
/// every sum is fp32 in an order that depends on the tree alone, and nothing is computed between tokens that do not
/// attend to each other; elsewhere, and where a window hides tokens of a text, libtorch's attention gets the mask.
Tensor tree_attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                      const AttentionOptions& options = {});

namespace portable {
/// Computes dense scores with the mask, in fp32.
Tensor tree_attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                      const AttentionOptions& options = {});
}  // namespace portable

}  // namespace athanor::ops
