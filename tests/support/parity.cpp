// Computes logits, losses, every gradient, and parameters after AdamW steps of a model, for comparison with
// transformers.
//
//   athanor_parity HF_DIR INPUT OUTPUT [--document-attention EOS_ID] [--steps N --lr LR]
//   athanor_parity CONFIG.toml INPUT OUTPUT …      a model of a configuration, whose parameters INPUT has as param.NAME
//
// The interface is described in tests/interop/test_transformers_parity.py.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "arch/inventory.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/safetensors.h"
#include "config/toml_reader.h"
#include "parallel/loss_sum.h"
#include "saves/router_state.h"
#include "train/microbatch.h"
#include "train/train_state.h"

namespace athanor {
namespace {

struct Arguments {
  std::string folder, input, output;
  int64_t eos_id = -1, steps = 0;
  double lr = 1e-3;
};

// Tensors by name, written as fp32.
using Named = std::vector<std::pair<std::string, Tensor>>;

Batch read_batch(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  const auto& entry = file.entry("tokens");
  Batch batch{entry.shape.at(0), entry.shape.at(1), {}, {}};
  std::vector<int64_t> ids(static_cast<size_t>(entry.num_elements));
  std::memcpy(ids.data(), file.data("tokens").data(), ids.size() * sizeof(int64_t));
  batch.tokens.assign(ids.begin(), ids.end());
  return batch;
}

void write(const std::string& path, const Named& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, Dtype::kF32, tensor.sizes().vec()});
  SafetensorsWriter writer(path, specs, {});
  for (const auto& [name, tensor] : tensors) {
    const Tensor values = tensor.to(at::kFloat).contiguous();
    writer.append(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()) * sizeof(float));
  }
  writer.commit();
}

LossNumbers forward_backward(TrainState& state, const Microbatch& microbatch) {
  Decoder& decoder = *state.model.chunks.front();
  decoder.forward(0, microbatch.tokens, &microbatch.labels);
  decoder.backward(0, {}, nullptr);
  return numbers_of(decoder.take_parts(0));
}

void add_parameters(Named& out, const TrainState& state, const std::string& prefix, bool gradients) {
  for (const auto& spec : make_inventory(state.config.model)) {
    const Weight weight = state.model.parameters.weight(spec.name);
    out.emplace_back(prefix + spec.name, (gradients ? weight.grad : weight.value).clone());
  }
}

// What a model is made of.
struct Source {
  ModelConfig model;
  double aux_loss_coef = 0;
  RouterRows router_bias;
  std::function<void(const std::string& name, int64_t first, std::span<float> out)> read;
};

Source open_source(const Arguments& given) {
  if (given.folder.ends_with(".toml")) {
    const RunConfig config = load_run_config(given.folder);
    auto file = std::make_shared<SafetensorsFile>(SafetensorsFile::open(given.input));
    return {config.model, config.moe.router_aux_loss_coef, {}, [file](const auto& name, int64_t first, auto out) {
              file->read_floats("param." + name, first, out);
            }};
  }
  auto folder = std::make_shared<HfFolder>(HfFolder::open(given.folder));
  return {folder->model(), folder->config().router_aux_loss_coef, folder->config().router_bias,
          [folder](const auto& name, int64_t first, auto out) { folder->read(name, first, out); }};
}

void run(const Arguments& given) {
  const Source source = open_source(given);
  const Batch batch = read_batch(given.input);
  RunConfig config;
  config.model = source.model;
  config.train.dtype = "float32";
  config.train.micro_batch_size = config.train.global_batch_size = batch.num_sequences;
  config.train.loss_chunk_tokens = 17;  // several chunks, the last of another length
  config.moe.aux_scope = "transformers";
  config.moe.router_aux_loss_coef = source.aux_loss_coef;
  config.moe.router_z_loss_coef = 0;
  config.data.attention_scope = given.eos_id >= 0 ? "document" : "instance";
  TrainState state(config, {});
  for (const auto& spec : make_inventory(config.model)) {
    state.model.parameters.fill_master(
        spec.name, [&](int64_t first, std::span<float> out) { source.read(spec.name, first, out); });
  }
  if (const auto& bias = source.router_bias; !bias.empty()) state.model.set_router_bias(tensor_of(bias));

  const auto microbatch = split_batch(batch, config, static_cast<uint32_t>(given.eos_id)).at(0);
  Named out = {{"logits", state.model.chunks.front()->logits(microbatch.tokens, microbatch.labels.documents)}};
  const LossNumbers parts = forward_backward(state, microbatch);
  out.emplace_back("loss", at::scalar_tensor(parts.mean_loss()));
  if (config.model.is_moe()) {
    const double layer_sequences = static_cast<double>(config.model.num_sparse_layers() * batch.num_sequences);
    out.emplace_back("aux_loss", at::scalar_tensor(parts.aux_sum / layer_sequences));
  }
  add_parameters(out, state, "grad.", true);
  for (int64_t step = 1; step <= given.steps; ++step) {
    if (step > 1) forward_backward(state, microbatch);
    state.optimizer.set.apply({step, given.lr, 1.0}, {0, state.model.parameters.flat_size()});
  }
  if (given.steps > 0) add_parameters(out, state, "param.", false);
  write(given.output, out);
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  athanor::Arguments given;
  CLI::App app("Writes what a model computes, for comparison with transformers");
  app.add_option("folder", given.folder)->required();
  app.add_option("input", given.input)->required();
  app.add_option("output", given.output)->required();
  app.add_option("--document-attention", given.eos_id);
  app.add_option("--steps", given.steps);
  app.add_option("--lr", given.lr);
  CLI11_PARSE(app, argc, argv);
  try {
    athanor::run(given);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
