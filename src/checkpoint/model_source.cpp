#include "checkpoint/model_source.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "arch/inventory.h"
#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text_template_json.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_kept.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/rotation.h"
#include "checkpoint/strict_json.h"
#include "config/toml_reader.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

// With another tokenizer the model would get nonsense without any message. A folder without a hash does not come from a
// run.
void check_tokenizer(const nlohmann::json& progress, const fs::path& tokenizer, const std::string& where) {
  if (tokenizer.empty() || !progress.is_object() || !progress.contains("tokenizer_hash")) return;
  const auto& expected = progress["tokenizer_hash"];
  if (!expected.is_string() || expected.get<std::string>().empty()) return;
  const std::string found = hash_file(tokenizer);
  ATHANOR_CHECK_CHECKPOINT(found == expected.get<std::string>(),
                           "{} is not the tokenizer that {} was trained with (its hash is {}, expected {}); put that "
                           "one back, from the folder of the run's data",
                           tokenizer.string(), where, found, expected.get<std::string>());
}

// The file of a model that a run wrote, or the state of a checkpoint, tells it; without the key there is nothing.
TextTemplate template_of(const nlohmann::json& state, int64_t vocab_size, const std::string& where) {
  if (!state.is_object() || !state.contains(kTextTemplateKey)) return {};
  const auto around = parse_text_template(state[kTextTemplateKey]);
  ATHANOR_CHECK_CHECKPOINT(around, "{}: {} is {}, which is no template; take another checkpoint", where,
                           kTextTemplateKey, shown_text(state[kTextTemplateKey].dump()));
  for (const uint32_t id : around->around({}))
    ATHANOR_CHECK_CHECKPOINT(id < vocab_size,
                             "{}: {} has token {}, beyond the model's vocab_size ({}); take another "
                             "checkpoint",
                             where, kTextTemplateKey, id, vocab_size);
  return *around;
}

// Notes where in the run the weights were made, as far as `state` tells.
void note_position(const nlohmann::json& state, ModelSource& source) {
  if (!state.is_object()) return;
  if (state.contains("step") && state["step"].is_number_integer()) source.step = state["step"].get<int64_t>();
  if (state.contains("tokens_seen") && state["tokens_seen"].is_number_integer())
    source.tokens = state["tokens_seen"].get<int64_t>();
}

ModelSource from_hf_folder(const fs::path& path) {
  const auto folder = std::make_shared<const HfFolder>(HfFolder::open(path));
  ModelSource source;
  if (const fs::path file = path / "athanor.json"; fs::exists(file)) {
    const auto progress = read_json(read_file(file));
    check_tokenizer(progress, find_tokenizer_file(path), path.string());
    note_position(progress, source);
    source.text_template = template_of(progress, folder->config().model.vocab_size, file.string());
  }
  source.config = folder->config();
  source.tokenizer = find_tokenizer_file(path);
  source.folder = path;
  source.description = "model " + path.string();
  source.read = [folder](const std::string& name, int64_t first, std::span<float> out) {
    folder->read(name, first, out);
  };
  return source;
}

ModelSource from_checkpoint(const std::shared_ptr<const CheckpointReader>& checkpoint) {
  const auto& state = checkpoint->state();
  const std::string where = (checkpoint->folder() / kManifestName).string();
  ATHANOR_CHECK_CHECKPOINT(state.contains("config") && state["config"].is_string(), "{} holds no configuration", where);
  const RunConfig run = parse_run_config(state["config"].get<std::string>(), where);
  ModelSource source;
  source.config.model = run.model;
  source.config.router_aux_loss_coef = run.moe.router_aux_loss_coef;
  source.config.router_bias = read_router_rows(state, kRouterBias, run.model, where);
  if (state.contains("eos_id") && state["eos_id"].is_number_integer())
    source.config.eos_token_ids = {state["eos_id"].get<int64_t>()};
  source.text_template = template_of(state, run.model.vocab_size, where);
  const fs::path run_folder = checkpoint->folder().parent_path().parent_path();
  add_kept_settings(run_folder, source.config);
  source.tokenizer = find_tokenizer_file(run_folder);
  check_tokenizer(state, source.tokenizer, checkpoint->folder().string());
  note_position(state, source);
  source.folder = checkpoint->folder();
  source.description = "checkpoint " + checkpoint->folder().string();
  source.read = [checkpoint](const std::string& name, int64_t first, std::span<float> out) {
    const std::string tensor = "master/" + name;
    const auto found = checkpoint->manifest().tensors.find(tensor);
    ATHANOR_CHECK_CHECKPOINT(found != checkpoint->manifest().tensors.end(), "{} has no tensor {}",
                             checkpoint->folder().string(), tensor);
    Slice slice = whole_slice(found->second);
    slice.flat_begin = first;
    slice.flat_end = first + static_cast<int64_t>(out.size());
    checkpoint->load({{tensor, slice, out.data()}});
  };
  return source;
}

ModelSource from_run_folder(const fs::path& path) {
  if (auto newest = open_newest_verified(path / "checkpoints")) {
    return from_checkpoint(std::make_shared<const CheckpointReader>(std::move(*newest)));
  }
  const auto models = list_checkpoints(path / "models");
  ATHANOR_CHECK_CHECKPOINT(!models.empty(),
                           "{} holds no checkpoint that verifies, neither full nor model-only; train it first",
                           path.string());
  return from_hf_folder(models.front().path);
}

}  // namespace

namespace {

// `athanor prepare` writes .npy files, and no folder of a model has any.
bool is_prepared_data(const fs::path& folder) {
  const auto files = fs::directory_iterator(folder);
  return std::any_of(begin(files), end(files), [](const auto& entry) { return entry.path().extension() == ".npy"; });
}

ModelSource open_source(const fs::path& path, bool verify) {
  ATHANOR_CHECK_CHECKPOINT(!fs::is_regular_file(path),
                           "{} is a file; name a run folder, a checkpoint or a folder of transformers", path.string());
  ATHANOR_CHECK_CHECKPOINT(fs::is_directory(path),
                           "{}: no such folder; expected a run folder, a checkpoint or a folder of transformers",
                           path.string());
  ATHANOR_CHECK_CHECKPOINT(
      !is_prepared_data(path),
      "{} is a folder of prepared data, not of a model; name a run folder, a checkpoint or a folder "
      "of transformers",
      path.string());
  if (fs::exists(path / kManifestName)) {
    auto checkpoint = CheckpointReader::open(path);
    if (verify) checkpoint.verify();
    return from_checkpoint(std::make_shared<const CheckpointReader>(std::move(checkpoint)));
  }
  if (fs::exists(path / "config.toml") || fs::exists(path / "checkpoints")) return from_run_folder(path);
  ATHANOR_CHECK_CHECKPOINT(is_hf_folder(path),
                           "{} is not a run folder (config.toml), a checkpoint (manifest.json) or a folder of "
                           "transformers (config.json and safetensors); name one of these",
                           path.string());
  return from_hf_folder(path);
}

}  // namespace

ModelSource open_model_source(const fs::path& path) {
  ModelSource source = with_io_errors([&] { return open_source(path, /*verify=*/true); });
  warn_of_unknown_members(source.config, source.folder);
  return source;
}

ModelSource open_verified_source(const fs::path& folder) {
  return with_io_errors([&] { return open_source(folder, /*verify=*/false); });
}

}  // namespace athanor::inline checkpoint
