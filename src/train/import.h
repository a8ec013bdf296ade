#pragma once
// A folder of `transformers` becomes a run at step 0.

#include <filesystem>

namespace athanor {

/// Writes `run_dir` with config.toml, the tokenizer and a checkpoint of step 0 that holds the master alone: moments
/// start fresh. Weights go through block by block: the folder may be larger than memory. Whole or absent.
/// @throws CheckpointError if the folder cannot be read or run_dir is there already; IoError.
void import_run(const std::filesystem::path& hf_folder, const std::filesystem::path& run_dir);

}  // namespace athanor
