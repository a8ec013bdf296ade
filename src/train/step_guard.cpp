#include "train/step_guard.h"

namespace athanor {

std::string first_non_finite_gradient(const ParameterStore& parameters) {
  for (const auto& entry : parameters.table()) {
    if (!at::isfinite(parameters.weight(entry.name).grad).all().item<bool>()) return entry.name;
  }
  return "";
}

}  // namespace athanor
