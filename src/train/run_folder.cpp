#include "train/run_folder.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/rotation.h"
#include "config/dump.h"

namespace athanor {
namespace fs = std::filesystem;

RunFolder open_run_folder(const RunConfig& config, const fs::path& tokenizer) {
  const RunFolder folder{config.train.run_dir};
  std::error_code error;
  const bool holds_run = fs::exists(folder.root / "metrics.jsonl") || !list_checkpoints(folder.checkpoints()).empty();
  ATHANOR_CHECK(
      !(holds_run && config.checkpoint.resume == "never"),
      "{} holds a run already and checkpoint.resume is \"never\"; name another train.run_dir, or resume with \"auto\"",
      folder.root.string());
  for (const auto& path : {folder.checkpoints(), folder.models(), folder.log_file().parent_path()}) {
    fs::create_directories(path, error);
    if (error) throw IoError("cannot create folder " + path.string() + ": " + error.message(), error.value());
  }
  clean_leftovers(folder.checkpoints());
  clean_leftovers(folder.models());
  write_file_atomically(folder.config(), dump_run_config(config));
  if (fs::exists(tokenizer)) write_file_atomically(folder.root / tokenizer_file_name(tokenizer), read_file(tokenizer));
  log::also_to_file(folder.log_file().string());
  return folder;
}

}  // namespace athanor
