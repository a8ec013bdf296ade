#pragma once
// A batch whose tokens are a function of their place.

#include "config/run_config.h"
#include "dataset/loader.h"

namespace athanor::inline train {

/// Returns a global batch of the configuration's size and sequence length, with token ids below 63.
inline Batch fixed_batch(const RunConfig& config) {
  Batch batch{config.train.global_batch_size, config.data.seq_len, {}, {}, {}};
  for (int64_t i = 0; i < batch.num_sequences * batch.seq_len; ++i)
    batch.tokens.push_back(static_cast<int32_t>((i * i + 7 * i) % 63));
  return batch;
}

}  // namespace athanor::inline train
