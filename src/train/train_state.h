#pragma once
// Everything a run is: named fp32 tensors and a few numbers. What is not here cannot change the next step.

#include <cstdint>

#include "config/run_config.h"
#include "data/loader.h"
#include "model/decoder.h"
#include "optim/adamw.h"

namespace athanor {

struct TrainState {
  /// Allocates parameters, gradients and moments, all zero; initialise or load before the first step.
  explicit TrainState(const RunConfig& run_config);

  RunConfig config;
  ParameterStore parameters;
  Decoder decoder;
  AdamW optimizer;

  int64_t step = 0;  ///< updates so far
  int64_t tokens_seen = 0;
  DataCursor cursor;  ///< the next sample to be drawn
};

}  // namespace athanor
