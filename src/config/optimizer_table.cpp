#include "config/optimizer_table.h"

#include <algorithm>

#include "base/error.h"

namespace athanor::inline config {

const std::vector<OptimizerRow>& optimizer_table() {
  static const std::vector<OptimizerRow> kTable = {
      {.name = "adamw",
       .state = {"exp_avg", "exp_avg_sq"},
       .options = {"betas", "eps"},
       .width_rule = WidthRule{.input = 0, .hidden = 1, .output = 1}},
      {.name = "sgd",
       .state = {"momentum"},
       .options = {"momentum", "nesterov"},
       .width_rule = WidthRule{.input = -1, .hidden = 0, .output = 1}},
      {.name = "lamb",
       .state = {"exp_avg", "exp_avg_sq"},
       .options = {"betas", "eps"},
       .needs = {.tensor_norms = true},
       .decays_in_direction = true},
      {.name = "sophiag",
       .state = {"exp_avg", "hessian"},
       .options = {"betas", "rho", "hessian_interval"},
       .needs = {.second_backward = true}},
      // Muon updates matrices; in a run of Muon, AdamW updates the rest.
      {.name = "muon",
       .state = {"momentum"},
       .options = {"momentum", "nesterov", "newton_schulz_steps", "newton_schulz_coefficients", "newton_schulz_dtype",
                   "muon_scale"},
       .needs = {.home_matrices = true},
       .width_rule = WidthRule{.input = 0, .hidden = 0, .output = 1}},  // with keller_jordan; see arch/width_scaling.h
  };
  return kTable;
}

const OptimizerRow& optimizer_row(const std::string& name) {
  const auto found = std::ranges::find(optimizer_table(), name, &OptimizerRow::name);
  if (found == optimizer_table().end()) fail<Error>("bug: there is no optimizer {}", name);
  return *found;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : optimizer_table()) names.push_back(row.name);
  return names;
}

}  // namespace athanor::inline config
