#include "layout/fitted_batch.h"

#include "config/defaults.h"
#include "layout/layout.h"

namespace athanor::inline layout {
namespace {

// Makes `micro_batch` divide the sequences of a data rank.
void fit(int64_t batch, int64_t data_ranks, int64_t& micro_batch) {
  if (batch % data_ranks == 0) micro_batch = largest_divisor(batch / data_ranks, micro_batch);
}

}  // namespace

std::vector<std::string> fit_to_ranks(RunConfig& config, int world_size) {
  TrainConfig& train = config.train;
  const ParallelismConfig& p = config.parallelism;
  const int64_t cut = p.tensor_parallel_degree * p.pipeline_parallel_degree;
  if (train.micro_batch_not_set && config.moe.balance == Balance::kNone && cut > 0 && world_size % cut == 0) {
    const int64_t data_ranks = world_size / cut;
    fit(common_batch(train), data_ranks, train.micro_batch_size);
    for (auto& stage : train.stages)
      if (stage.global_batch_size > 0) fit(stage.global_batch_size, data_ranks, stage.micro_batch_size);
  }
  return find_layout_faults(config, world_size);
}

}  // namespace athanor::inline layout
