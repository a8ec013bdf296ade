#pragma once
// The memory of activations: what one microbatch leaves for backward, what comes and goes beside it, and how much of
// both a rank has at once under a schedule.
//
// With N tokens of a microbatch, n of them the rank's own (N / t under sequence_parallel, else N), w bytes an element,
// t tensor ranks; q, k: columns of its query and of its key heads; f = F / t, and of the experts R rows (choices of its
// experts; N·K evenly), S rows that came from the expert group. A layer keeps, in bytes,
//
//   norms           2·nDw streams + 2·NDw normed (not under recompute norm) + 8n rstd (16n: LayerNorm)
//   attention       (2q + 2k)·Nw turned q, k, v and the output; + (q + k)·Nw as projected where there is a QK-norm or a
//                   clip (then + k·Nw); + 4N·heads logsumexp; + 4N·(rows of the norms)
//   feed-forward    3fNw
//   sparse          2fRw gate and up; 16·NK route; 12·NK choices and weights; 4N(E + 1) scores; shared: 3·f_s·Nw;
//                   over several expert ranks also S·(Dw + 12K + 16K) instead of the route
//   recompute       attention, moe: none of its line but the choices; layer: nDw and the choices, nothing else
//
// and a stage beside its layers: 4N·head_dim cos and sin; nDw of the embedding's output or of what was received; of the
// last stage 2·nDw before the last norm and of the loss's gradient. What comes and goes is played op by op
// (arch/layer_memory.h). Kernels are those of CPUs with our tiles; the library pads an expert's rows to 32.

#include <vector>

#include "arch/layout.h"
#include "arch/product_scratch.h"
#include "arch/stages.h"

namespace athanor {

/// One microbatch through one stage.
struct StageMemory {
  double kept_bytes = 0;      ///< between its forward and its backward
  double forward_bytes = 0;   ///< most during forward
  double backward_bytes = 0;  ///< most during backward, what was kept included
};

struct ActivationNeed {
  std::vector<StageMemory> stages;  ///< of the rank, by chunk
  int in_flight = 1;                ///< microbatches (over chunks) at the peak
  double batch_bytes = 0;           ///< tokens and targets of a step
  double mail_bytes = 0;            ///< of hidden states and gradients between stages, on their way
  double kept_bytes = 0;            ///< of all in flight, with batch_bytes and mail_bytes
  double peak_bytes = 0;            ///< the most of all

  double transient_bytes() const { return peak_bytes - kept_bytes; }
};

StageMemory count_stage_memory(const RunConfig& config, int64_t seq_len, const Layout& layout, const StageLayers& stage,
                               Multiplier multiplier = {});

/// Over the schedule of `rank`.
ActivationNeed count_activations(const RunConfig& config, int64_t seq_len, const Layout& layout, int rank,
                                 Multiplier multiplier = {});

}  // namespace athanor
