#pragma once
// Finds the weights of a model: in a run folder, one of its checkpoints, or a `transformers` folder.

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/text_template.h"
#include "checkpoint/hf_config.h"

namespace athanor::inline checkpoint {

struct ModelSource {
  HfConfig config;  ///< the model, its router bias, and the tokens that end texts as far as they are known
  /// What stands around the texts that the model was trained on here; none for a folder from elsewhere, whose tokenizer
  /// tells it.
  std::optional<TextTemplate> text_template;
  std::filesystem::path tokenizer;  ///< tokenizer.json or tokenizer.model; empty if there is none
  std::filesystem::path folder;     ///< the checkpoint or `transformers` folder that the weights are in
  std::string description;          ///< "checkpoint runs/tiny/checkpoints/step-00000500"
  int64_t step = -1;                ///< the step of the run that the weights are from; −1: not known
  int64_t tokens = -1;              ///< the training tokens that the run had seen by then; −1: not known
  /// Reads elements [first, first + out.size()), row-major, of a logical parameter as fp32. Thread-safe.
  /// @throws CheckpointError if the model has no such parameter.
  std::function<void(const std::string& name, int64_t first, std::span<float> out)> read;
};

/// Opens the source of a model's weights; `path` is a run folder, a checkpoint or a `transformers` folder. In a run
/// folder it opens the newest checkpoint whose hashes are right, otherwise the newest model-only one. Of a checkpoint
/// it verifies all hashes; a `transformers` folder has none.
/// @throws CheckpointError naming what is missing or damaged, or a tokenizer that is not the one that the model was
/// trained with.
ModelSource open_model_source(const std::filesystem::path& path);
/// Opens a folder that another process has opened so, ModelSource::folder, without computing its hashes again.
ModelSource open_verified_source(const std::filesystem::path& folder);

}  // namespace athanor::inline checkpoint
