#pragma once
// What distinguishes the families, as data. Adding a family is adding a line here and, where it brings parameters of
// its own, in inventory.cpp.

#include "config/model_config.h"

namespace athanor {

enum class NormKind {
  kRms,                     // with a scale
  kLayerWithoutParameters,  // OLMo
};

struct Architecture {
  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  bool qk_norm = false;  ///< RMSNorm over the whole query and key projections (OLMoE)
  bool sparse = false;   ///< experts instead of one feed-forward layer
};

inline Architecture describe_architecture(const ModelConfig& model) {
  if (model.family == "olmo") return {NormKind::kLayerWithoutParameters, 1e-5, false, false};
  return {NormKind::kRms, model.rms_norm_eps, true, true};  // olmoe
}

}  // namespace athanor
