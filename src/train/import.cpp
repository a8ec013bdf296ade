#include "train/import.h"

#include <nlohmann/json.hpp>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/model_identity.h"
#include "checkpoint/rotation.h"
#include "checkpoint/writer.h"
#include "config/dump.h"
#include "train/run_folder.h"

namespace athanor {
namespace fs = std::filesystem;

void import_run(const fs::path& hf_folder, const fs::path& run_dir) {
  ATHANOR_CHECK_CHECKPOINT(!fs::exists(run_dir), "{} is there already; name another --out or remove it",
                           run_dir.string());
  const HfFolder folder = HfFolder::open(hf_folder);
  AtomicFolder out(run_dir);
  const RunFolder run{out.staging()};

  RunConfig config;
  config.model = folder.model();
  config.train.run_dir = run_dir.string();
  config.moe.router_aux_loss_coef = folder.config().router_aux_loss_coef;
  write_file_atomically(run.config(), dump_run_config(config));
  if (const fs::path tokenizer = find_tokenizer_file(hf_folder); !tokenizer.empty()) {
    write_file_atomically(run.root / tokenizer.filename(), read_file(tokenizer));
    copy_tokenizer_settings(hf_folder, run.root);
  }

  uint64_t num_bytes = 0;
  for (const ParameterSpec& spec : folder.parameters())
    num_bytes += static_cast<uint64_t>(spec.num_elements()) * sizeof(float);
  ProgressBar progress("importing", num_bytes, "B", kLongWork_s);
  std::vector<PieceView> pieces;
  for (const ParameterSpec& spec : folder.parameters()) {
    const auto read = [&folder, &spec, &progress](int64_t first, std::span<float> values) {
      folder.read(spec.name, first, values);
      progress.add(values.size_bytes());
    };
    pieces.push_back({"master/" + spec.name, whole_slice(spec.shape), nullptr, read});
  }
  nlohmann::json state = {
      {"step", 0}, {"tokens_seen", 0}, {"seed", config.train.seed}, {"config", dump_run_config(config)}};
  if (folder.config().eos_token_id) state["eos_id"] = *folder.config().eos_token_id;
  fs::create_directories(run.checkpoints());
  write_checkpoint(run.checkpoints() / step_folder_name(0), pieces, model_identity(config.model), state);
  out.commit();
}

}  // namespace athanor
