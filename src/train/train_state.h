#pragma once
// Everything a run is: named fp32 tensors and a few numbers. What is not here cannot change the next step.

#include <cstdint>
#include <string>

#include "config/training_stages.h"
#include "data/mixture.h"
#include "model/decoder.h"
#include "optim/adamw.h"

namespace athanor {

/// What a model learns to read: checkpoints carry it, so that a run is not continued with other tokens.
struct DataIdentity {
  std::string tokenizer_hash;
  uint32_t eos_id = 0;
};

struct TrainState {
  /// Allocates parameters, gradients and moments, all zero; initialise or load before the first step.
  TrainState(const RunConfig& run_config, DataIdentity data_identity);

  RunConfig config;
  TrainingStage stage;  ///< the one that the next step is in
  DataIdentity data;
  ParameterStore parameters;
  Decoder decoder;
  AdamW optimizer;

  int64_t step = 0;  ///< updates so far
  int64_t tokens_seen = 0;
  DataLedger ledger;  ///< what has been drawn from each source
};

}  // namespace athanor
