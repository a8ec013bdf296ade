#include "train/step_guard.h"

#include <algorithm>

#include "ops/transfer.h"

namespace athanor::inline train {
namespace {

template <class Of>
std::string first_non_finite(const ParameterStore& parameters, Of of) {
  const auto& table = parameters.table();
  if (table.empty()) return "";
  std::vector<Tensor> are_finite;
  for (const auto& entry : table) are_finite.push_back(at::isfinite(of(parameters.weight(entry.name))).all());
  const Tensor here = ops::fetch(at::stack(are_finite));
  const auto* begin = here.const_data_ptr<bool>();
  const auto first = std::find(begin, begin + table.size(), false) - begin;
  return first == std::ssize(table) ? "" : table[static_cast<size_t>(first)].name;
}

}  // namespace

std::string first_non_finite_gradient(const ParameterStore& parameters) {
  return first_non_finite(parameters, [](const Weight& weight) { return weight.grad; });
}

std::string first_non_finite_weight(const ParameterStore& parameters) {
  return first_non_finite(parameters, [](const Weight& weight) { return weight.value; });
}

}  // namespace athanor::inline train
