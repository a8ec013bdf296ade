#include "arch/width_scaling.h"

#include <cmath>

#include "base/error.h"

namespace athanor::inline arch {
double width_ratio(const OptimizerConfig& optimizer, const ModelConfig& model) {
  if (optimizer.scaling != WidthScaling::kMup) return 1;
  return static_cast<double>(optimizer.base_width) / static_cast<double>(model.hidden_size);
}

double initial_factor(WidthClass width, double ratio) {
  switch (width) {
    case WidthClass::kInput: return 1;
    case WidthClass::kHidden: return std::sqrt(ratio);
    case WidthClass::kOutput: return ratio;
  }
  fail<Error>("bug: no such class of widths");
}

double rate_factor(const std::string& optimizer, MuonScale muon_scale, WidthClass width, double ratio) {
  const bool is_sgd = optimizer == "sgd", is_muon = optimizer == "muon";
  ATHANOR_ASSERT(is_sgd || is_muon || optimizer == "adamw");
  if (width == WidthClass::kOutput) return ratio;
  if (is_sgd) return width == WidthClass::kInput ? 1 / ratio : 1;
  if (width == WidthClass::kInput) return 1;
  if (is_muon) return muon_scale == MuonScale::kMoonshot ? std::sqrt(ratio) : 1;
  return ratio;
}

}  // namespace athanor::inline arch
