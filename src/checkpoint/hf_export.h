#pragma once
// Writes a folder that `transformers` loads: config.json, weights, tokenizer. Whole or absent, like everything we
// write.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "arch/inventory.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/team.h"

namespace athanor {

/// Gives all of a parameter's elements, row-major. Called once for each, in the order of the inventory; what it returns
/// must stay valid until the next call.
using ParameterSource = std::function<std::span<const float>(const ParameterSpec&)>;

struct HfExportOptions {
  Dtype dtype = Dtype::kBF16;  // or kF32
  /// Weights beyond this go into several files with an index; a single larger tensor gets a file of its own.
  uint64_t max_shard_bytes = 5'000'000'000;
  /// A tokenizer.json or tokenizer.model, copied with the settings that stand beside it (hf_tokenizer.h); "" writes no
  /// tokenizer.
  std::filesystem::path tokenizer = {};
  /// Name → text of files of our own beside the weights, written with them or not at all.
  std::map<std::string, std::string> extra_files = {};
  /// Replace a transformers folder that is there, once the new one is whole.
  bool overwrite = false;
};

/// Gives elements [first, first + out.size()), row-major, of a parameter: for models that are not in memory.
using ParameterReader = std::function<void(const ParameterSpec&, int64_t first, std::span<float> out)>;

/// @param config  token ids in it go into config.json and generation_config.json.
/// @throws CheckpointError if the model has what its family's class in `transformers` has not, if `folder` is there,
/// not empty and not to be overwritten, or a source's length is wrong; IoError. Fault points: "export.block" before
/// each block of weights (enospc plays a full disk), "export.before_commit".
void export_hf_folder(const std::filesystem::path& folder, const HfConfig& config, const ParameterSource& source,
                      const HfExportOptions& options = {});
/// Collective over the team, each of whose members can read every parameter: they share the files of weights, and where
/// one throws all do. The reader is called by one thread of each member.
void export_hf_folder(const std::filesystem::path& folder, const HfConfig& config, const ParameterReader& reader,
                      const HfExportOptions& options = {}, const Team& team = {});

}  // namespace athanor
