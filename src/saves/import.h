#pragma once
// Makes a run at step 0 from a `transformers` folder.

#include <filesystem>

namespace athanor::inline saves {

/// Writes `run_dir` with config.toml, the tokenizer if the folder has one, and a checkpoint of step 0 that has only the
/// master weights: moments begin at zero. Weights are copied block by block, so the folder may be larger than memory.
/// On failure `run_dir` is absent.
/// @throws CheckpointError if the folder cannot be read or run_dir exists already; IoError.
void import_run(const std::filesystem::path& hf_folder, const std::filesystem::path& run_dir);

}  // namespace athanor::inline saves
