#pragma once
// The number types of a run, resolved once from its configuration. Whoever needs one asks here, and compares no names.

#include "base/number_types.h"
#include "config/run_config.h"

namespace athanor::inline config {

/// Masters and the state of optimizers are float32.
struct Precision {
  NumberType compute = NumberType::kFloat32;        ///< forward and backward, and the weights that they read
  NumberType reduce = NumberType::kFloat32;         ///< gradients between ranks
  NumberType model = NumberType::kFloat32;          ///< weights in model-only checkpoints
  NumberType orthogonalize = NumberType::kFloat32;  ///< products of Newton and Schulz's iteration

  /// Whether forward reads weights that are rounded from the master.
  bool rounds_weights() const { return compute != NumberType::kFloat32; }
  /// Whether gradients are rounded into another buffer before they are sent.
  bool rounds_gradients() const { return reduce != NumberType::kFloat32; }
};

/// @param config  with train.dtype resolved (defaults.h).
Precision precision_of(const RunConfig& config);
/// Precision::orthogonalize of a run with this optimizer.
NumberType orthogonalize_type(const OptimizerConfig& config);

/// Sets train.dtype to `usual`, unless a type was asked for or `usual` is empty.
void choose_type(TrainConfig& train, const std::string& usual);
/// Sets train.dtype to what a run computes in on devices, unless a type was asked for.
void choose_type_of_devices(TrainConfig& train);

}  // namespace athanor::inline config
