#include "eval/loaded_model.h"

#include "base/console.h"
#include "checkpoint/model_source.h"
#include "train/router_state.h"

namespace athanor {

LoadedModel load_model(const std::filesystem::path& path, at::ScalarType compute_type, int64_t chunk_tokens,
                       at::Device device) {
  const ModelSource source = open_model_source(path);
  ATHANOR_CHECK_DATA(!source.tokenizer.empty(),
                     "{} has no tokenizer.json or tokenizer.model; copy the one it was trained with there",
                     path.string());
  LoadedModel model{source.config.model, nullptr, nullptr, Tokenizer::load(source.tokenizer), std::nullopt};
  ATHANOR_CHECK_DATA(static_cast<int64_t>(model.tokenizer.vocab_size()) <= model.config.vocab_size,
                     "{} has {} tokens, more than the model's vocab_size ({}): it belongs to another model",
                     source.tokenizer.string(), model.tokenizer.vocab_size(), model.config.vocab_size);
  ATHANOR_CHECK_CHECKPOINT(source.config.eos_token_id.value_or(0) < model.config.vocab_size,
                           "{}: eos_token_id is {}, beyond the model's vocab_size ({}); correct it in its config.json",
                           path.string(), source.config.eos_token_id.value_or(0), model.config.vocab_size);
  if (source.config.eos_token_id) model.eos_id = static_cast<uint32_t>(*source.config.eos_token_id);
  RunConfig config;
  config.model = model.config;
  config.train.dtype = compute_type == at::kBFloat16 ? "bfloat16" : "float32";
  config.train.loss_chunk_tokens = chunk_tokens;
  config.train.micro_batch_size = config.train.global_batch_size = 1;
  model.alone = std::make_unique<OneRank>(config);
  model.state = std::make_unique<ModelState>(
      config, model.alone->mesh, ModelStateOptions{.use = ParameterStore::Use::kInference, .device = device});
  const auto element_bytes = static_cast<uint64_t>(at::elementSize(compute_type));
  ProgressBar progress("loading " + path.filename().string(),
                       static_cast<uint64_t>(count_parameters(model.config)) * element_bytes, "B", kLongWork_s);
  for (const auto& spec : make_inventory(model.config)) {
    model.state->parameters.fill_master(spec.name, [&](int64_t first, std::span<float> out) {
      source.read(spec.name, first, out);
      progress.add(out.size() * element_bytes);
    });
  }
  progress.finish();
  if (const auto& bias = source.config.router_bias; !bias.empty()) model.state->set_router_bias(tensor_of(bias));
  return model;
}

}  // namespace athanor
