#include "arch/width_scaling.h"

#include <cmath>

#include "base/error.h"
#include "config/optimizer_table.h"

namespace athanor::inline arch {
namespace {

// Rounded once, which std::pow need not be.
double power_of(double ratio, double power) {
  if (power == 0) return 1;
  if (power == -1) return 1 / ratio;
  return power == 0.5 ? std::sqrt(ratio) : ratio;
}

}  // namespace

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
  WidthRule powers = optimizer_row(optimizer).width_rule.value();
  if (optimizer == "muon" && muon_scale == MuonScale::kMoonshot) powers.hidden = 0.5;
  switch (width) {
    case WidthClass::kInput: return power_of(ratio, powers.input);
    case WidthClass::kHidden: return power_of(ratio, powers.hidden);
    case WidthClass::kOutput: return power_of(ratio, powers.output);
  }
  fail<Error>("bug: no such class of widths");
}

}  // namespace athanor::inline arch
