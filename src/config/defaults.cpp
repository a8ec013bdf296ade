#include "config/defaults.h"

#include <algorithm>
#include <cfloat>

#include "base/number_types.h"

namespace athanor {
namespace {

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(most, number);
  while (divisor > 1 && number % divisor != 0) --divisor;
  return std::max<int64_t>(1, divisor);
}

double a_tenth(double lr) { return lr / 10 >= FLT_MIN ? lr / 10 : 0; }  // the range of fp32

}  // namespace

void resolve_defaults(RunConfig& config, const std::function<bool(std::string_view key)>& is_set) {
  auto& train = config.train;
  if (train.dtype == "auto") {
    train.dtype_was_auto = true;
    train.dtype = has_fast_bf16() ? "bfloat16" : "float32";
  }
  auto& optimizer = config.optimizer;
  if (!is_set("train.micro_batch_size")) {
    train.micro_batch_size = largest_divisor(train.global_batch_size, train.micro_batch_size);
    for (auto& stage : train.stages) {
      if (stage.micro_batch_size == 0 && stage.global_batch_size > 0)
        stage.micro_batch_size = largest_divisor(stage.global_batch_size, train.micro_batch_size);
    }
  }
  if (!is_set("optimizer.min_lr")) {
    if (optimizer.min_lr > optimizer.lr) optimizer.min_lr = a_tenth(optimizer.lr);
    for (auto& stage : train.stages) {
      if (stage.min_lr < 0 && stage.lr > 0 && optimizer.min_lr > stage.lr) stage.min_lr = a_tenth(stage.lr);
    }
  }
  if (!is_set("optimizer.warmup_steps")) {
    optimizer.warmup_not_set = true;
    const int64_t steps = train.stages.empty() ? train.steps : train.stages.front().steps;
    optimizer.warmup_steps = std::min(kDefaultWarmupSteps, steps / 10);
  }
}

}  // namespace athanor
