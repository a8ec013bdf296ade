#pragma once
// Writes a folder that `transformers` loads: config.json, weights, tokenizer. The folder is whole or absent.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "arch/inventory.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/team.h"

namespace athanor::inline checkpoint {

struct HfExportOptions {
  Dtype dtype = Dtype::kBF16;  // kBF16 or kF32
  /// Most bytes of weights in a file. A larger model gets several files with an index, and a single larger tensor a
  /// separate file.
  uint64_t max_shard_bytes = 5'000'000'000;
  /// A tokenizer.json or tokenizer.model, copied with the settings in its folder (hf_tokenizer.h); "" writes no
  /// tokenizer.
  std::filesystem::path tokenizer = {};
  /// Name → text of additional files of ours in the folder, which are written with the weights or not at all.
  std::map<std::string, std::string> extra_files = {};
  /// Replaces an existing folder with a config.json once the new one is whole.
  bool overwrite = false;
};

/// Reads elements [first, first + out.size()), row-major, of a parameter: for models that are not in memory.
using ParameterReader = std::function<void(const ParameterSpec&, int64_t first, std::span<float> out)>;

/// Writes the folder together: each member of the team can read every parameter, and the members share the files of
/// weights. Collective over the team; if one throws, all do. One thread of each member calls the reader.
/// @param config  its token ids go into config.json and generation_config.json.
/// @throws CheckpointError if the model has something that its family's class in `transformers` lacks, or if the
/// tokenizer does not fit the model. It is also thrown if `folder` exists, is not empty and may not be overwritten;
/// IoError.
///
/// Fault points: "export.block" before each block of weights (enospc simulates a full disk), "export.before_commit".
void export_hf_folder(const std::filesystem::path& folder, const HfConfig& config, const ParameterReader& reader,
                      const HfExportOptions& options = {}, const Team& team = {});

}  // namespace athanor::inline checkpoint
