#pragma once
// The memory of activations: the bytes that one microbatch keeps for backward, the transient bytes on top of them, and
// the most that a rank holds of both at once under a pipeline schedule.
//
// Symbols: a microbatch has N tokens, of which n belong to this rank (N / t under sequence_parallel, else N); an
// element has w bytes; there are t tensor ranks; q and k are the columns of the rank's query heads and of its key
// heads; f is F / t; R is the number of rows of the rank's experts (the choices that they take: N·K if the load is
// even); S is the number of rows received from the expert group. A layer keeps, in bytes:
//
//   norms           2·nDw streams + 2·NDw normed (not under recompute norm) + 8n rstd (16n: LayerNorm)
//   attention       (2q + 2k)·Nw turned q, k, v and the output; + (q + k)·Nw as projected where there is a QK-norm or a
//                   clip (then + k·Nw); + 4N·heads logsumexp; + 4N·(rows of the norms)
//   feed-forward    3fNw
//   sparse          2fRw gate and up; 16·NK route; 12·NK choices and weights; 4N(E + 1) scores; shared: 3·f_s·Nw;
//                   over several expert ranks also S·(Dw + 12K + 16K) instead of the route
//   recompute       attention, moe: nothing of that line except the choices; layer: nDw and the choices, nothing else
//
// In addition to its layers, a stage keeps 4N·head_dim of cos and sin and nDw of the embedding's output or of the
// hidden states received; the last stage also keeps nDw of the last norm's input and NDw of the loss's gradient.
// Transient memory is found by simulating the ops one by one (layout/layer_memory.h). The kernels assumed are those for
// CPUs with this project's tiles; the library pads an expert's rows to 32.

#include <vector>

#include "layout/layout.h"
#include "layout/product_scratch.h"
#include "layout/stages.h"

namespace athanor {

/// Memory of one microbatch in one stage.
struct StageMemory {
  double kept_bytes = 0;      ///< held between its forward and its backward
  double forward_bytes = 0;   ///< peak during forward
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
StageMemory count_stage_memory(const RunConfig& config, int64_t seq_len, const Layout& layout, const StageLayers& stage,
                               Multiplier multiplier = {});

/// Returns the activation memory of `rank` over its pipeline schedule.
ActivationNeed count_activations(const RunConfig& config, int64_t seq_len, const Layout& layout, int rank,
                                 Multiplier multiplier = {});

}  // namespace athanor
