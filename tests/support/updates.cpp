// Applies an optimizer to given gradients, for comparison with optimizers written elsewhere.
//
//   athanor_updates CONFIG INPUT OUTPUT
//
// The interface is described in tests/interop/test_optimizers.py.

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "arch/inventory.h"
#include "checkpoint/safetensors.h"
#include "config/toml_reader.h"
#include "layout/holding.h"
#include "model/decoder.h"
#include "optim/optimizer_set.h"

namespace athanor {
namespace {

std::vector<float> read_values(const SafetensorsFile& file, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(file.entry(name).num_elements));
  std::memcpy(values.data(), file.data(name).data(), values.size() * sizeof(float));
  return values;
}

void set_gradients(const ParameterStore& store, const SafetensorsFile& file, const std::string& prefix) {
  for (const BucketEntry& entry : store.table()) {
    const auto values = read_values(file, prefix + entry.name);
    std::copy(values.begin(), values.end(), store.grad().data_ptr<float>() + entry.flat_begin);
  }
}

void run(const std::string& config_file, const std::string& input, const std::string& output) {
  const RunConfig config = load_run_config(config_file);
  const auto file = SafetensorsFile::open(input);
  ParameterStore store(make_bucket_entries(config.model, 0, 1), at::kFloat, ParameterStore::Use::kTraining);
  for (const BucketEntry& entry : store.table()) store.write_master(entry, 0, read_values(file, "param." + entry.name));
  const OneRank alone(config);
  const ShardPlan shards(alone.mesh, ShardingKind::kNone);
  OptimizerSet optimizers(configured_optimizers(config.optimizer), config.model, store, shards);
  for (int64_t step = 1; step <= config.train.steps; ++step) {
    if (optimizers.second_backward(step)) {
      set_gradients(store, file, fmt::format("second.{}.", step));
      optimizers.learn_from_second(step, /*num_targets=*/1000);
    }
    set_gradients(store, file, fmt::format("grad.{}.", step));
    const Update update{step, config.optimizer.lr, 1.0};
    optimizers.begin(update);
    optimizers.apply(update, {0, store.flat_size()});
  }
  std::vector<TensorSpec> specs;
  for (const BucketEntry& entry : store.table()) specs.push_back({entry.name, Dtype::kF32, entry.extent});
  SafetensorsWriter writer(output, specs, {});
  for (const BucketEntry& entry : store.table()) {
    const Tensor values = store.master_copy(entry.name).contiguous();
    writer.append(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()) * sizeof(float));
  }
  writer.commit();
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  std::string config, input, output;
  CLI::App app("Writes what an optimizer makes of given gradients");
  app.add_option("config", config)->required();
  app.add_option("input", input)->required();
  app.add_option("output", output)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    athanor::run(config, input, output);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
