#include "arch/inventory.h"

#include <algorithm>

#include "arch/model_spec.h"
#include "base/error.h"

namespace athanor::inline arch {

std::vector<ParameterSpec> make_inventory(const ModelConfig& model) { return make_model_spec(model).parameters(); }

ParameterSpec find_parameter(const ModelConfig& model, const std::string& name) {
  const auto all = make_inventory(model);
  const auto found = std::ranges::find(all, name, &ParameterSpec::name);
  if (found == all.end()) fail<Error>("the model has no parameter {}", name);
  return *found;
}

int64_t count_parameters(const ModelConfig& model) {
  int64_t total = 0;
  for (const auto& spec : make_inventory(model)) total += spec.num_elements();
  return total;
}

int64_t count_active_parameters(const ModelConfig& model) {
  int64_t active = 0;
  for (const auto& spec : make_inventory(model)) {
    active +=
        spec.is_expert() ? spec.num_elements() / model.num_experts * model.num_experts_per_tok : spec.num_elements();
  }
  return active;
}

}  // namespace athanor::inline arch
