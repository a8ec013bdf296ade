#pragma once
// How people name a checkpoint: by its step (40), by the step as its folder has it or without the zeros (step-00000040,
// step-40), or by a path.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "checkpoint/listing.h"

namespace athanor::inline checkpoint {

/// Returns the step of "40", "step-40" and "step-00000040"; nothing for another text.
std::optional<int64_t> step_of_words(std::string_view text);

/// Returns the step of such words, or of the path of a checkpoint of this kind in the run's folder.
/// @throws ConfigError for another text, or a path that is elsewhere.
int64_t step_in_run(const std::string& text, const std::filesystem::path& run, CheckpointKind kind);

/// Returns the path of a folder whose name may lack zeros, or that lies in checkpoints/ or models/ of the folder that
/// is named: RUN/step-40 is RUN/checkpoints/step-00000040. A path that exists, or for which there is no such folder, is
/// returned as it is.
std::filesystem::path find_step_folder(const std::filesystem::path& path);

}  // namespace athanor::inline checkpoint
