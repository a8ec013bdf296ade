#pragma once
// A vocabulary whose rows are shared by the ranks of a tensor group: the embedding, and the head with its loss. Rank r
// of n holds rows [V·r/n, V·(r+1)/n) of V (layout/holding.h), so ranks may hold different numbers of rows.
//
// A decoder calls these functions instead of the ops of similar names:
//   x = vocabulary_embedding(tokens_BT, embedding, vocab_size, ranks);                 // the layers' input
//   h = enter_tensor_parallel(final_norm.of(residual).normed, ranks, B).partitioned;   // [B, T, D]; backward adds up
//   loss = vocabulary_cross_entropy(h.reshape({-1, D}), output, targets, vocab_size, grad_scale, chunk_tokens, ranks);
// They are collective over the group, and wait; for a group of one they are the ops themselves. (B sequences of T
// tokens each; D is the hidden size.)
// Source: Megatron-LM (Shoeybi et al. 2019, §3).

#include "ops/linear_cross_entropy.h"
#include "parallel/tensor_parallel.h"

namespace athanor::inline parallel {

/// Returns the first row that rank `rank` of `ranks` holds; vocab_size if `rank` is `ranks`.
int64_t first_vocabulary_row(int64_t vocab_size, int rank, int ranks);

/// tokens [B, T] int64 → [B, T, D], or the rank's tokens [1, B·T/n, D] under sequence parallelism, with the bits of one
/// unsplit table. Ranks that do not hold a token's row add zeros: forward all-reduces, or reduce-scatters, [B, T, D];
/// backward sends nothing, or all-gathers.
/// @param weight  the rank's rows.
Tensor vocabulary_embedding(const Tensor& tokens, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks);

/// ops::linear_cross_entropy with the rank's rows of the weight. Logits exist only for a chunk of tokens and the
/// rank's rows. For each chunk of C tokens forward all-reduces C maxima, then C sums of exponentials with the targets'
/// C logits, in fp32. Backward sends nothing.
/// @param x        [tokens, hidden], of TensorParallelInput::partitioned: the gradient is a partial sum on each rank.
/// @param targets  [tokens] int64, ids of the whole vocabulary.
/// @param draw  as in ops::linear_cross_entropy; two further all-reduces of C values are then made for each chunk.
/// @param cap   bound of the logits, as there.
/// @return the sum of losses (fp64), with the same bits on every rank.
/// @throws DataError as ops::check_targets.
Tensor vocabulary_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, int64_t vocab_size,
                                double grad_scale, int64_t chunk_tokens, const TensorRanks& ranks,
                                const ops::LabelDraw& draw = {}, double cap = 0);

/// ops::token_losses with the rank's rows of the weight, and with the same bits on every rank. The second all-reduce
/// has three values for each token, and not two as in vocabulary_cross_entropy.
ops::TokenLosses vocabulary_token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                         int64_t vocab_size, int64_t chunk_tokens, const TensorRanks& ranks,
                                         double cap = 0);

/// Gathers logits, for the few tokens after which a text is continued. Training and scoring never gather them.
/// x [R, D] → logits [R, V] in the compute type, equal on all ranks, without autograd. Collective over the group: an
/// all-gather of R times the largest number of rows that a rank holds. Waits, as Pending::wait.
/// @param weight  the rank's rows.
Tensor vocabulary_logits(const Tensor& x, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks,
                         double cap = 0);

}  // namespace athanor::inline parallel
