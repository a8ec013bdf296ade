#pragma once
// The weights of a model, wherever they lie: a run folder, one of its checkpoints, or a folder of `transformers`.

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/hf_config.h"

namespace athanor {

struct ModelSource {
  HfConfig config;                  ///< the model, and its end-of-document token where one is known
  std::filesystem::path tokenizer;  ///< tokenizer.json or tokenizer.model; empty if there is none
  std::string description;          ///< "checkpoint runs/tiny/checkpoints/step-00000500"
  /// Elements [first, first + out.size()), row-major, of a logical parameter as fp32.
  std::function<void(const std::string& name, int64_t first, std::span<float> out)> read;
};

/// A run folder answers with its newest checkpoint that verifies, else with its newest model-only one.
/// @throws CheckpointError naming what is missing or damaged, or a tokenizer that is not the one it was trained with.
ModelSource open_model_source(const std::filesystem::path& path);

}  // namespace athanor
