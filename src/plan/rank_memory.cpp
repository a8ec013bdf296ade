#include "plan/rank_memory.h"

#include <algorithm>

#include "base/log.h"
#include "plan/played_step.h"

namespace athanor::inline plan {
namespace {

// The tokens and angles of a microbatch are made while it is played. One with more tokens, which is hardly meant, is
// estimated by formulas.
constexpr int64_t kMostTokens = int64_t{1} << 24;

// A pipeline is as full after this many microbatches as it gets; those that follow differ in nothing. Under gpipe all
// are in flight.
int64_t different_microbatches(const ParallelismConfig& p, const Layout& layout) {
  const int64_t all = layout.microbatches();
  if (layout.pipeline() == 1) return std::min<int64_t>(2, all);
  return p.pipeline_schedule == PipelineSchedule::kGpipe ? all
                                                         : std::min(all, 2 * layout.pipeline() * p.virtual_stages);
}

}  // namespace

MemoryNeed memory_of_rank(const RunConfig& config, const Layout& layout, int rank) {
  const int64_t of_microbatch = config.train.micro_batch_size * config.data.seq_len;
  const auto by_formulas = [&] {
    RunConfig plain = config;
    plain.train.cuda_graphs = false;  // there are none on a CPU
    return estimate_train_memory(plain, config.data.seq_len, layout, rank, {at::get_num_threads()});
  };
  if (of_microbatch > kMostTokens) return by_formulas();
  const int64_t all = layout.microbatches(), played_ones = different_microbatches(config.parallelism, layout);
  RunConfig shorter = config;
  shorter.train.global_batch_size = config.train.global_batch_size / all * played_ones;
  shorter.train.batch_ramp = {};
  shorter.train.stages = {};
  std::unique_ptr<PlayedStep> played;
  try {
    played = play_step(shorter, layout.world_size(), rank);
  } catch (const c10::Error& error) {  // an op of libtorch has no form for meta tensors
    log::warn("memory: this step cannot be played, so its memory is estimated by formulas: {}",
              error.what_without_backtrace());
    return by_formulas();
  }
  // The step has the tokens and targets of all microbatches, int64.
  const auto tokens = static_cast<double>((all - played_ones) * of_microbatch);
  const double of_others = 2 * sizeof(int64_t) * tokens;
  MemoryNeed need;
  need.state_bytes = static_cast<double>(played->kept_bytes);
  need.activation_bytes = static_cast<double>(played->activation_bytes()) + of_others;
  need.transient_bytes = static_cast<double>(played->gradient_bytes() - played->activation_bytes());
  const auto optimizers = plan_optimizers(config.optimizer).optimizers;
  if (std::ranges::any_of(optimizers, [](const OptimizerDeclaration& each) { return each.needs.home_matrices; }))
    need.update_bytes = static_cast<double>(played->update_bytes()) + of_others;
  need.staging_bytes = count_staging_bytes(config, layout, rank, plan_optimizers(config.optimizer));
  return need;
}

}  // namespace athanor::inline plan
