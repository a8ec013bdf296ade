#include "bench/beside_adamw.h"

#include <fmt/core.h>

#include <algorithm>

#include "arch/inventory.h"
#include "bench/place.h"
#include "model/decoder.h"
#include "ops/tensor.h"
#include "optim/optimizer_set.h"

namespace athanor::bench {
namespace {

// Layers of width 1,024, so that there are about this many parameters; at least one.
RunConfig config_of(const std::string& name, int64_t parameters) {
  RunConfig config;
  config.model.family = "llama";
  config.model.hidden_size = 1024;
  config.model.intermediate_size = 4096;
  config.model.num_attention_heads = config.model.num_key_value_heads = 8;
  config.model.vocab_size = 64;
  config.model.num_hidden_layers = std::max<int64_t>(1, parameters / (4 * 1024 * 1024 + 3 * 1024 * 4096));
  config.optimizer.name = name;
  return config;
}

// An optimizer with its parameters. `update` is what a step does, with gradients that are there.
struct Updated {
  RunConfig config;
  OneRank alone;
  ShardPlan shards;
  ParameterStore store;
  OptimizerSet optimizers;
  Tensor noise, scale, changed;  // where the parameters are; a device reads and writes the last two

  Updated(const std::string& name, const BenchOptimizerArguments& given, at::ScalarType dtype, at::Device device)
      : config(config_of(name, given.parameters)), alone(config), shards(alone.mesh, ShardingKind::kNone),
        store(make_bucket_entries(config.model, 0, 1), dtype, ParameterStore::Use::kTraining, {}, device),
        optimizers(configured_optimizers(config.optimizer), config.model, store, shards) {
    for (const BucketEntry& entry : store.table())
      store.fill_master(entry.name, [](int64_t, std::span<float> out) { std::ranges::fill(out, 0.02f); });
    noise = sent(at::randn({store.flat_size()}) * 1e-3, device);
    scale = at::ones({1}, noise.options());
    changed = at::zeros({1}, noise.options().dtype(at::kLong));
  }

  // The gradients that the step before has set to zero are set again, which does not count.
  Subject subject() {
    return {config.optimizer.name, {{"before the buckets", 0}, {"buckets", 0}}, [this](Laps& laps) {
              store.grad().copy_(noise);
              laps.skip();
              Update update{1, 1e-9, 1.0};
              if (!noise.is_cpu()) update.on_device = {scale, changed};
              optimizers.begin(update);
              laps.end(0);
              optimizers.apply(update, {0, store.flat_size()});
              laps.end(1);
            }};
  }
};

}  // namespace

void measure_beside_adamw(at::ScalarType dtype, const BenchOptimizerArguments& given, at::Device device,
                          Report& report) {
  Updated adamw("adamw", given, dtype, device), other(given.name, given, dtype, device);
  const std::vector<Subject> subjects = {adamw.subject(), other.subject()};
  const auto samples = measure_in_turns(subjects, given, device);
  const int64_t parameters = count_parameters(adamw.config.model);
  const nlohmann::json fields = with_device(
      {{"parameters", parameters}, {"dtype", ops::type_name(dtype)}, {"threads", at::get_num_threads()}}, device);
  report.begin(fmt::format("one update of {} parameters, weights in {}", parameters, ops::type_name(dtype)));
  report.add(subjects[0], samples[0], fields, {});
  report.add(subjects[1], samples[1], fields, {},
             fmt::format("{:.2f} times the time of adamw", median(samples[1].total) / median(samples[0].total)));
}

}  // namespace athanor::bench
