#pragma once
// A batch whose tokens are a function of their place.

#include <algorithm>

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

// Runs of saves/testing/ranks.h in less time: most of it goes to each operation of each microbatch, not to tokens.

/// Returns the run with as few microbatches on each rank as still accumulate gradients and fill the pipeline.
inline RunConfig with_few_microbatches(RunConfig config) {
  const auto& p = config.parallelism;
  const int64_t sequences =
      config.train.global_batch_size / (p.data_parallel_replicate_degree * p.data_parallel_shard_degree);
  int64_t count = std::max<int64_t>(2, p.pipeline_parallel_degree);
  while (sequences % count) ++count;
  config.train.micro_batch_size = sequences / count;
  return config;
}

}  // namespace athanor::inline train
