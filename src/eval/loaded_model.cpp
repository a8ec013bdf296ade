#include "eval/loaded_model.h"

#include "base/console.h"
#include "base/text.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "ops/tensor.h"
#include "parallel/share.h"
#include "saves/router_state.h"
#include "train/state_pieces.h"
#include "train/step_guard.h"

namespace athanor::inline eval {
namespace {

void check_source(const ModelSource& source, const std::filesystem::path& path) {
  ATHANOR_CHECK_DATA(!source.tokenizer.empty(),
                     "{} has no tokenizer.json or tokenizer.model; copy the one it was trained with there",
                     path.string());
  const int64_t vocab_size = source.config.model.vocab_size;
  for (const auto& [ids, file] : {std::pair(source.config.eos_token_ids, "config.json"),
                                  std::pair(source.config.generation.eos_token_ids, "generation_config.json")}) {
    for (const int64_t id : ids)
      ATHANOR_CHECK_CHECKPOINT(id < vocab_size,
                               "{}: eos_token_id is {}, beyond the model's vocab_size ({}); correct it in its {}",
                               path.string(), id, vocab_size, file);
  }
}

// Those of generation_config.json, as `transformers` does it, else those of config.json; a run's own token always.
std::vector<uint32_t> ends_of_text(const ModelSource& source) {
  const auto& generation = source.config.generation.eos_token_ids;
  const auto& all = generation.empty() ? source.config.eos_token_ids : generation;
  std::vector<uint32_t> ids(all.begin(), all.end());
  const auto eos = source.config.eos_token_id();
  if (source.text_template && eos) ids.push_back(static_cast<uint32_t>(*eos));
  return ids;
}

Tokenizer load_tokenizer(const ModelSource& source) {
  Tokenizer tokenizer = Tokenizer::load(source.tokenizer);
  const int64_t vocab_size = source.config.model.vocab_size;
  ATHANOR_CHECK_DATA(static_cast<int64_t>(tokenizer.vocab_size()) <= vocab_size,
                     "{} has {} tokens, more than the model's vocab_size ({}): it belongs to another model",
                     source.tokenizer.string(), tokenizer.vocab_size(), vocab_size);
  return tokenizer;
}

// The configuration of a run whose state would hold this model, with the fields that a layout needs.
RunConfig config_of(const ModelConfig& model, const LoadOptions& options, int ranks) {
  RunConfig config;
  config.model = model;
  config.train.dtype = ops::type_name(options.compute_type);
  config.train.loss_chunk_tokens = options.chunk_tokens;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = ranks;  // which every number of data ranks divides
  config.data.seq_len = std::min(config.data.seq_len, model.text_positions());
  if (options.overrides.empty()) return config;
  for (const std::string& each : options.overrides) {
    ATHANOR_CHECK(each.starts_with("parallelism.") || each.starts_with("topology.") || each.starts_with("moe.dispatch"),
                  "--set {}: only the layout can be set for a model that is not trained; name a field of parallelism, "
                  "topology or moe.dispatch",
                  each);
  }
  RunConfig laid_out = parse_run_config(dump_run_config(config, false), "--set", options.overrides,
                                        [&](const RunConfig& read) { return find_layout_faults(read, ranks); });
  ATHANOR_CHECK(!laid_out.parallelism.sequence_parallel,
                "--set parallelism.sequence_parallel: it saves memory in training only; leave it out");
  return laid_out;
}

// Sets what every rank knows of the model's source.
LoadedModel begin_model(ModelSource source, bool is_first) {
  LoadedModel model;
  model.config = source.config.model;
  if (const auto eos = source.config.eos_token_id()) model.eos_id = static_cast<uint32_t>(*eos);
  model.end_ids = ends_of_text(source);
  if (is_first) {
    model.tokenizer = load_tokenizer(source);
    model.num_tokens = std::min<int64_t>(model.config.vocab_size, model.tokenizer->vocab_size());
  }
  model.source = std::move(source);
  return model;
}

void fill(LoadedModel& model, const std::filesystem::path& path) {
  const auto element_bytes = static_cast<uint64_t>(model.state->parameters.compute().element_size());
  ProgressBar progress("loading " + path.filename().string(),
                       static_cast<uint64_t>(model.state->parameters.num_elements()) * element_bytes, "B", kLongWork_s);
  load_master(*model.state, SharedBy::kBroadcast, [&](const std::string& name, int64_t first, std::span<float> out) {
    model.source.read(name, first, out);
    progress.add(out.size() * element_bytes);
  });
  progress.finish();
  if (const auto& bias = model.source.config.router_bias; !bias.empty()) model.state->set_router_bias(tensor_of(bias));
}

// A model whose weights are not finite gives some token, or some score, whatever it is asked. Collective.
void refuse_what_is_not_finite(const LoadedModel& model, const std::filesystem::path& path) {
  const std::string name =
      first_of_any(model.state->mesh.world().all(), first_non_finite_weight(model.state->parameters));
  ATHANOR_CHECK_CHECKPOINT(name.empty(),
                           "{}: {} is not finite as {}, so that nothing which the model computes would mean anything; "
                           "take another model or an older checkpoint",
                           path.string(), name, ops::type_name(model.state->parameters.compute().scalar_type()));
}

ModelStateOptions state_options(const LoadOptions& options) {
  return {.use = ParameterStore::Use::kInference, .device = options.device};
}

}  // namespace

LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options) {
  ModelSource source = open_model_source(path);
  check_source(source, path);
  LoadedModel model = begin_model(std::move(source), /*is_first=*/true);
  const RunConfig config = config_of(model.config, options, 1);
  model.alone = std::make_unique<OneRank>(config);
  model.state = std::make_unique<ModelState>(config, model.alone->mesh, state_options(options));
  fill(model, path);
  refuse_what_is_not_finite(model, path);
  return model;
}

LoadedModel load_model(const std::filesystem::path& path, comm::World& world, const LoadOptions& options,
                       std::optional<ModelSource> opened) {
  const bool is_first = world.rank() == 0;
  ModelSource source;
  if (is_first) {
    source = opened ? std::move(*opened) : open_model_source(path);
    check_source(source, path);
  }
  const std::string folder = broadcast_text(world.all(), source.folder.string());
  if (!is_first) source = open_verified_source(folder);
  LoadedModel model = begin_model(std::move(source), is_first);
  const std::string num_tokens = broadcast_text(world.all(), std::to_string(model.num_tokens));
  model.num_tokens = std::stoll(num_tokens);
  const RunConfig config = config_of(model.config, options, world.size());
  model.shared = std::make_unique<Mesh>(Layout(config, world.size()), world);
  model.shared->use(options.device, config.parallelism.device_sums);
  model.state = std::make_unique<ModelState>(config, *model.shared, state_options(options));
  fill(model, path);
  refuse_what_is_not_finite(model, path);
  return model;
}

}  // namespace athanor::inline eval
