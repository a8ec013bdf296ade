#pragma once
// Causal softmax attention over whole instances or document by document: on our tiles (kernels/attention.h) if the
// processor has them, else through libtorch's flash kernel.

#include <cmath>
#include <optional>
#include <vector>

#include "ops/tensor.h"

namespace athanor::ops {

/// The documents of a microbatch in the memory of a device (document_tables.h). Undefined: not sent.
struct DocumentTables {
  /// int32 [documents + 1], ascending: where each document begins among the tokens of all sequences, one after the
  /// other, and at last the number of tokens. There may be empty documents at the end.
  Tensor offsets;
  Tensor positions;  ///< int64 [B, T]: the position of each token in its document
};

/// Lengths of the documents of each sequence; they add up to its tokens. Empty: each sequence is one document.
struct DocumentLengths : std::vector<std::vector<int32_t>> {
  using std::vector<std::vector<int32_t>>::vector;
  DocumentTables tables;  ///< what these lengths are on a device
};

/// What a layer's attention computes; the defaults are causal attention over all of a document.
struct AttentionOptions {
  int64_t window = 0;   ///< tokens that a token attends to, itself and those before it; 0: all of them
  double scale = 0;     ///< factor of products of queries and keys; 0: 1 / √head_dim
  double soft_cap = 0;  ///< bound of the logits, these products times scale (soft_cap.h); 0: none
  /// [heads]: a further logit of each head, whose value is zero, so that the weights of the keys add up to less than 1
  /// (gpt-oss; Xiao et al. 2024, StreamingLLM). Undefined: there is none.
  Weight sinks = {};

  /// Returns the factor for q [..., head_dim].
  double scale_of(const Tensor& q) const { return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(q.size(-1))); }
  /// Whether there is something that no kernel of libtorch has.
  bool needs_steps() const { return soft_cap > 0 || sinks.defined(); }
  /// Returns the factor as libtorch's kernels take it.
  std::optional<double> given_scale() const { return scale > 0 ? std::optional(scale) : std::nullopt; }
};

/// Attention in single steps, for what libtorch's kernels lack. q [B, heads, T, head_dim], k and v [B, heads, S,
/// head_dim], seen bool, broadcast to [B, heads, T, S] → [B, heads, T, head_dim], fp32 inside (fp64 for fp64
/// arguments). All scores are in memory. Autograd differentiates it, by AttentionOptions::sinks' values, too.
Tensor attention_in_steps(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& seen,
                          const AttentionOptions& options);

/// q [B, T, heads, head_dim]; k, v [B, T, kv_heads, head_dim] → [B, T, heads, head_dim]. A token attends to itself and
/// to the tokens before it in its document, as far as a window goes; nothing is computed between documents. Inputs are
/// bf16 or fp32. Every sum is fp32 in an order that does not depend on threads. On tiles, attention weights are rounded
/// to bf16 only on the path avx512_bf16 with bf16 inputs.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents = {},
                 const AttentionOptions& options = {});

/// Also sets `largest` to the largest logit of each sequence and head, fp32 [B, heads], as largest_attention_logits
/// does. On tiles attention has it anyway unless there is a soft cap or a sink; elsewhere it costs that function's
/// products.
Tensor attention_with_logits(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                             Tensor& largest, const AttentionOptions& options = {});

namespace library {
/// Computes attention through libtorch's kernel, with a call for each document.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents = {},
                 const AttentionOptions& options = {});
}  // namespace library

namespace portable {
/// Computes dense scores with a mask, in fp32.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents = {},
                 const AttentionOptions& options = {});
}  // namespace portable

// The largest logits of attention, for statistics: attention itself keeps no logits.

/// Computes the logits of attention() once more, before a soft cap and without sinks, in fp32 and block by block, and
/// returns the largest one of each sequence and head: [B, heads] fp32. Arguments as in attention(). It takes about half
/// as many products as attention's forward, and memory for 64 rows of logits of all heads.
Tensor largest_attention_logits(const Tensor& q, const Tensor& k, const DocumentLengths& documents = {},
                                const AttentionOptions& options = {});

}  // namespace athanor::ops
