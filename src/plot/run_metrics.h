#pragma once
// The file of metrics that a user means.

#include <filesystem>
#include <string>

#include "record/step_table.h"

namespace athanor::inline plot {

/// Returns the metrics.jsonl of a run folder, or the file itself that was given.
/// @throws ConfigError if it is neither, or the run has done no step yet; IoError.
std::filesystem::path find_metrics(const std::string& given);

/// Warns of lines that are no step. @throws ConfigError if there is no step among them.
void check_steps(const std::filesystem::path& metrics, const StepTable& table);

}  // namespace athanor::inline plot
