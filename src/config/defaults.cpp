#include "config/defaults.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "base/number_types.h"
#include "config/families.h"

namespace athanor::inline config {
namespace {

double a_tenth(double lr) { return lr / 10 >= FLT_MIN ? lr / 10 : 0; }  // the range of fp32

int64_t first_schedule_steps(const RunConfig& config) {
  const int64_t in_all = config.optimizer.schedule_steps;
  if (config.train.stages.empty()) return in_all > 0 ? in_all : config.train.steps;
  const StageConfig& first = config.train.stages.front();
  const int64_t of_phase = first.schedule_steps >= 0 ? first.schedule_steps : in_all;
  return of_phase > 0 ? of_phase : first.steps;
}

// Dense families have none. Those of recipes/olmoe-tiny.toml.
void choose_experts(ModelConfig& model, const std::function<bool(std::string_view key)>& is_set) {
  const Family* family = find_family(model.family);
  if (!model.from.empty() || !family || !family->sparse) return;
  if (!is_set("model.num_experts")) model.num_experts = std::max<int64_t>(16, model.num_experts_per_tok);
  if (!is_set("model.num_experts_per_tok")) model.num_experts_per_tok = std::clamp<int64_t>(model.num_experts, 1, 4);
  if (!is_set("model.router_score")) model.router_score = family->defaults.router_score;
  if (family->has_shared_experts && !is_set("model.num_shared_experts")) model.num_shared_experts = 1;
}

// The sizes of DeepSeek-V2-Lite in proportion to the width, 128 dims of a head there.
void choose_latents(ModelConfig& model, const std::function<bool(std::string_view key)>& is_set) {
  const Family* family = find_family(model.family);
  if (!model.from.empty() || !family || !family->latent_attention || model.num_attention_heads < 1) return;
  const auto even = [](int64_t dims) { return std::max<int64_t>(2, dims / 2 * 2); };
  const int64_t dims = even(model.hidden_size / model.num_attention_heads);
  if (!is_set("model.qk_nope_head_dim")) model.qk_nope_head_dim = dims;
  if (!is_set("model.qk_rope_head_dim")) model.qk_rope_head_dim = even(dims / 2);
  if (!is_set("model.v_head_dim")) model.v_head_dim = dims;
  if (!is_set("model.kv_lora_rank")) model.kv_lora_rank = 4 * dims;
}

}  // namespace

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(most, number);
  while (divisor > 1 && number % divisor != 0) --divisor;
  return std::max<int64_t>(1, divisor);
}

int64_t common_batch(const TrainConfig& train) {
  int64_t common = train.global_batch_size;
  for (const auto& part : train.batch_ramp) common = std::gcd(common, part.sequences);
  return common;
}

void resolve_defaults(RunConfig& config, const std::function<bool(std::string_view key)>& is_set) {
  choose_experts(config.model, is_set);
  choose_latents(config.model, is_set);
  const Family* family = find_family(config.model.family);
  const bool has_folders = !config.model.from.empty() || !family || !family->architecture.empty();
  if (!has_folders && !is_set("checkpoint.model_interval")) config.checkpoint.model_interval = 0;
  auto& train = config.train;
  if (!is_set("train.validation_interval")) train.validation_interval.is_auto = true;
  if (train.dtype == "auto" || !is_set("train.dtype")) {
    train.dtype_was_auto = true;
    train.dtype = name_of(has_fast_bf16() ? NumberType::kBFloat16 : NumberType::kFloat32);
  }
  auto& optimizer = config.optimizer;
  if (!is_set("train.micro_batch_size")) {
    train.micro_batch_not_set = true;
    train.micro_batch_size = largest_divisor(common_batch(train), train.micro_batch_size);
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
  const bool counts_tokens = optimizer.schedule_tokens > 0;
  if (counts_tokens && !is_set("optimizer.warmup_tokens"))
    optimizer.warmup_tokens = std::floor(optimizer.schedule_tokens / 100);
  if (counts_tokens && !is_set("optimizer.warmup_steps")) optimizer.warmup_steps = 0;
  if (!counts_tokens && !is_set("optimizer.warmup_steps")) {
    optimizer.warmup_not_set = true;
    optimizer.warmup_steps = std::min(kDefaultWarmupSteps, first_schedule_steps(config) / 10);
  }
}

}  // namespace athanor::inline config
