#pragma once
// The memory of activations: the bytes that one microbatch keeps for backward, the transient bytes on top of them, and
// the most that a rank holds of both at once under a pipeline schedule.
//
// Symbols, of which N and S are those of this file only. A microbatch has N tokens; n of them belong to this rank
// (N / t under sequence_parallel, where t is the tensor degree; else N). An element of an activation has w bytes. D is
// the hidden size, E the number of experts of a layer, and K the number of experts that a token chooses. The rank has
// `heads` query heads with q columns together, and key heads with k columns. f is its part of an intermediate size (of
// a dense layer, or of one expert), and f_s its part of that of all shared experts together. R is the number of choices
// that fall on its experts (N·K, since the load is assumed to be even). S is the number of tokens that dispatch brings
// to it: each rank of the expert group, itself included, sends each token that chose one of its experts once. A layer
// keeps these bytes:
//
//   norms           2·nDw for the sums of the residual stream that the two norms read (nDw in the first layer of a
//                   stage); 2·NDw for the normed tokens; 8n for rstd (16n for mean and rstd of LayerNorm)
//   attention       (2q + 2k)·Nw for queries and keys after RoPE, values, and the heads' output; 4N·heads for the
//                   logsumexp. With a QK-norm or clip_qkv also (q + k)·Nw for queries and keys as projected; with
//                   clip_qkv k·Nw more for values; with a QK-norm 4N·(heads + key heads) for its rstd if it is of each
//                   head, 8N if it is of the whole projection
//   feed-forward    3fNw for gate, up and their product; only in dense layers
//   sparse          2fRw for gate and up; 16·NK for the map between choices and rows; 12·NK for expert ids and weights;
//                   4N(E + 1) for scores (with a sigmoid router also NEw); 3·f_s·Nw for shared experts. With several
//                   expert ranks, S·Dw for the tokens received, 12·SK for their expert ids and weights, and a map of
//                   16·SK instead of 16·NK
//
// Recompute `norm` removes the normed tokens, `attention` the whole second row, and `moe` the third row and the fourth
// except 8·NK for the expert ids. Under `layer`, a layer keeps only nDw for its output and these ids.
//
// In addition to its layers, a stage keeps 4N·head_dim for cos and sin, and nDw for its input (the embedding's output
// or the hidden states received). The last stage also keeps nDw for the last norm's input (under recompute `layer` this
// is the output counted above) and NDw for the loss's gradient. Small amounts are not in this list but in the code.
//
// Transient memory is found by simulating the ops one by one (layout/layer_memory.h). The formulas are for CPUs that
// multiply with this project's tiles; the path `library` needs more, because the rows of each expert are padded to a
// multiple of 32 there. On a device (Multiplier::on_device) there is no scratch memory of tiles, and the maps of
// dispatch are counted. R is then the room for rows: up to S·min(K, E / expert ranks) with allgather, and the padding
// of each expert to a multiple of 8. What attention takes there is counted, too (layout/device_workspace.h): backward's
// scratch memory and, where the memory-efficient kernel computes it, 4q·Nw for queries, keys, values and output, with a
// larger logsumexp. What other kernels of libtorch take for themselves is not.

#include <vector>

#include "layout/layout.h"
#include "layout/product_scratch.h"
#include "layout/stages.h"

namespace athanor::inline layout {

/// Memory of one microbatch in one stage.
struct StageMemory {
  double kept_bytes = 0;      ///< held between its forward and its backward
  double forward_bytes = 0;   ///< peak during forward; includes what is kept
  double backward_bytes = 0;  ///< peak during backward, kept_bytes included
};

struct ActivationNeed {
  std::vector<StageMemory> stages;  ///< the rank's stages, by chunk
  int in_flight = 1;                ///< microbatches in flight at the peak, summed over chunks
  double batch_bytes = 0;           ///< tokens and targets of a step
  double mail_bytes = 0;            ///< hidden states and gradients on their way between stages
  double kept_bytes = 0;            ///< kept by all microbatches in flight at the peak, with batch_bytes and mail_bytes
  double peak_bytes = 0;            ///< the most that the rank holds at any time

  /// Bytes at the peak in addition to kept_bytes.
  double transient_bytes() const { return peak_bytes - kept_bytes; }
};

/// Returns the memory of one microbatch of sequences of `seq_len` tokens in one stage.
/// @param multiplier  the scratch memory of matrix products depends on it.
StageMemory count_stage_memory(const RunConfig& config, int64_t seq_len, const Layout& layout, const StageLayers& stage,
                               Multiplier multiplier = {});

/// Returns the activation memory of `rank` (of the world) over its pipeline schedule.
ActivationNeed count_activations(const RunConfig& config, int64_t seq_len, const Layout& layout, int rank,
                                 Multiplier multiplier = {});

}  // namespace athanor::inline layout
