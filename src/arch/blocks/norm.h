#pragma once
// A norm: RMSNorm with a scale, LayerNorm with scale and bias, or LayerNorm without parameters.

#include "arch/parameter.h"
#include "config/families.h"

namespace athanor::inline arch {

struct NormSpec {
  std::string name;  ///< "model.layers.3.input_layernorm"
  int64_t layer = -1;
  NormKind kind = NormKind::kRms;
  int64_t width = 0;
  double eps = 0;
  double offset = 0;  ///< the scale is the weight plus this; with 1, weights begin as 0
  /// The class of its parameters: kOutput if a tied output layer, which is of class input, reads what it returns.
  WidthClass width_class = WidthClass::kInput;
  TensorGradient gradient = TensorGradient::kOfTokens;  ///< ParameterSpec::gradient

  bool has_weight() const { return kind != NormKind::kLayerWithoutParameters; }
  bool has_bias() const { return kind == NormKind::kLayer; }
  std::string weight() const { return name + ".weight"; }
  std::string bias() const { return name + ".bias"; }
  void append_parameters(std::vector<ParameterSpec>& out) const;
};

}  // namespace athanor::inline arch
