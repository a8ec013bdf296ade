#pragma once
// Runs of saves/testing/ranks.h in less time: most of it goes to each operation of each microbatch, not to tokens.

#include <algorithm>

#include "config/run_config.h"

namespace athanor::inline train {

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
