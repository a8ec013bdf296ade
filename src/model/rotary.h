#pragma once
// The rotary positions of a model: their frequencies, scaled for longer contexts as its configuration specifies, and
// the angles of a pass's tokens.

#include <optional>

#include "arch/model_spec.h"
#include "blocks/attention.h"
#include "ops/rotation_tables.h"

namespace athanor::inline model {

struct Rotary {
  Tensor frequency;    ///< [head_dim/2], fp32: the angle from one position to the next, in radians
  double scale = 1.0;  ///< factor of cos and sin, and so of queries and keys
};

/// Returns the frequencies and scale for the model's rope_scaling.rope_type: "default" and "dynamic" are not scaled
/// (dynamic scaling begins only beyond max_position_embeddings), "linear" follows Chen et al. 2023, "yarn" Peng et al.
/// 2023, §3, and "llama3" Llama 3.1.
Rotary make_rotary(const ModelConfig& model);

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
