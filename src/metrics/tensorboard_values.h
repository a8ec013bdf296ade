#pragma once
// What TensorBoard reads of a tag and step that is more than a number: messages of the type Summary.Value.

#include <string>
#include <utility>
#include <vector>

#include "metrics/layer_metrics.h"

namespace athanor::inline metrics {

/// Returns the message of a histogram.
std::string histogram_value(const std::string& tag, const Histogram& histogram);

/// Returns the message with which TensorBoard's plugin "hparams" knows a run: names and values of its hyperparameters,
/// which are given as TOML and become numbers, truth values or texts.
std::string hyperparameters_value(const std::vector<std::pair<std::string, std::string>>& toml, double start_time_s);

}  // namespace athanor::inline metrics
