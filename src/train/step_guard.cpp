#include "train/step_guard.h"

#include <algorithm>

#include "ops/transfer.h"

namespace athanor {

std::string first_non_finite_gradient(const ParameterStore& parameters) {
  const auto& table = parameters.table();
  if (table.empty()) return "";
  std::vector<Tensor> are_finite;
  for (const auto& entry : table) are_finite.push_back(at::isfinite(parameters.weight(entry.name).grad).all());
  const Tensor here = ops::fetch(at::stack(are_finite));
  const auto* begin = here.const_data_ptr<bool>();
  const auto first = std::find(begin, begin + table.size(), false) - begin;
  return first == std::ssize(table) ? "" : table[static_cast<size_t>(first)].name;
}

}  // namespace athanor
