#pragma once
// Which optimizer updates which parameters, in words.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline layout {

/// Returns a line for each optimizer of a run, "adamw: 3 tensors of 1,000 parameters; rate 0.001, decay 0.1: embedding,
/// norm (1 of 2)": the tensors and parameters of the whole model, and for each rate and weight decay the roles, with
/// the number of tensors where others of the role have another. The rate is the peak of the schedule, after scaling by
/// width. Empty if one optimizer updates all and there are no optimizer.groups. From the configuration alone.
/// @param config  with a model that is resolved.
std::vector<std::string> describe_optimizers(const RunConfig& config);

}  // namespace athanor::inline layout
