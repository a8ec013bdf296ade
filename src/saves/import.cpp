#include "saves/import.h"

#include <nlohmann/json.hpp>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text_template_json.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_kept.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/model_identity.h"
#include "checkpoint/not_finite.h"
#include "checkpoint/rotation.h"
#include "checkpoint/router_rows.h"
#include "checkpoint/writer.h"
#include "config/dump.h"
#include "record/run_folder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;

namespace {

// A tokenizer that is not read here is no obstacle to the weights, and goes back as it came.
void import_tokenizer(const fs::path& hf_folder, const fs::path& run_folder, nlohmann::json& state) {
  const fs::path file = find_tokenizer(hf_folder);
  if (file.empty()) return;
  copy_tokenizer_settings(hf_folder, run_folder);
  try {
    const Tokenizer tokenizer = Tokenizer::load(hf_folder);  // with the tokens of the files next to it
    write_file_atomically(run_folder / tokenizer.file_name(), tokenizer.file_bytes());
    if (const auto around = tokenizer.text_template(); !around.empty())
      state[kTextTemplateKey] = text_template_json(around);
  } catch (const DataError& error) {
    log::warn("the tokenizer is copied, and not read ({}); name another one to prepare data with", error.what());
    if (!find_tokenizer_file(hf_folder).empty()) write_file_atomically(run_folder / file.filename(), read_file(file));
  }
}

}  // namespace

void import_run(const fs::path& hf_folder, const fs::path& run_dir) {
  ATHANOR_CHECK_CHECKPOINT(!fs::exists(run_dir), "{} is there already; name another --out, or move it away",
                           run_dir.string());
  const HfFolder folder = HfFolder::open(hf_folder);
  warn_of_unknown_members(folder.config(), hf_folder);
  AtomicFolder out(run_dir);
  const RunFolder run{out.staging()};

  RunConfig config;
  config.model = folder.model();
  config.train.run_dir = run_dir.string();
  config.train.dtype = "auto";
  config.train.validation_interval.is_auto = true;
  config.moe.router_aux_loss_coef = folder.config().router_aux_loss_coef;
  write_file_atomically(run.config(), dump_run_config(config));
  nlohmann::json state = {
      {"step", 0}, {"tokens_seen", 0}, {"seed", config.train.seed}, {"config", dump_run_config(config)}};
  if (const auto eos = folder.config().eos_token_id()) state["eos_id"] = *eos;
  if (const auto& bias = folder.config().router_bias; !bias.empty()) state[kRouterBias] = bias;
  import_tokenizer(hf_folder, run.root, state);
  keep_hf_settings(folder.config(), run.root);

  uint64_t num_bytes = 0;
  for (const ParameterSpec& spec : folder.parameters())
    num_bytes += static_cast<uint64_t>(spec.num_elements()) * sizeof(float);
  ProgressBar progress("importing", num_bytes, "B", kLongWork_s);
  std::vector<PieceView> pieces;
  for (const ParameterSpec& spec : folder.parameters()) {
    const auto read = [&folder, &hf_folder, &spec, &progress](int64_t first, std::span<float> values) {
      folder.read(spec.name, first, values);
      require_finite(values, spec.name, first, hf_folder.string());
      progress.add(values.size_bytes());
    };
    pieces.push_back({"master/" + spec.name, whole_slice(spec.shape), nullptr, read});
  }
  fs::create_directories(run.checkpoints());
  write_checkpoint(run.checkpoints() / step_folder_name(0), pieces, model_identity(config.model), state);
  out.commit();
}

}  // namespace athanor::inline saves
