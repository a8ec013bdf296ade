#pragma once
// The rotary positions of a model: their frequencies, scaled for longer contexts as its configuration specifies, and
// the angles of a pass's tokens.

#include <optional>

#include "arch/model_spec.h"
#include "blocks/attention.h"
#include "ops/rotation_tables.h"

namespace athanor::inline model {

/// Returns the frequencies for the model's rope_scaling.rope_type: "default" and "dynamic" are not scaled (dynamic
/// scaling begins only beyond max_position_embeddings), "linear" follows Chen et al. 2023, "yarn" Peng et al. 2023, §3,
/// "llama3" Llama 3.1, and "longrope" Ding et al. 2024. Pairs that are not turned have the frequency 0 and the scale 1.
ops::RotaryFrequencies make_rotary(const ModelConfig& model);

/// The tables of angles that a model's layers read: none if positions are learned.
class RotationsOfModel {
 public:
  RotationsOfModel(const ModelSpec& spec, const ModelConfig& model, at::Device device);

  /// Returns what of_tables (a table → a rotation) makes of each table.
  template <class F>
  Rotations of(F of_tables) {
    Rotations all;
    if (scaled_) all.scaled = of_tables(*scaled_);
    if (unscaled_) all.unscaled = of_tables(*unscaled_);
    return all;
  }

 private:
  std::optional<ops::RotationTables> scaled_, unscaled_;
};

}  // namespace athanor::inline model
