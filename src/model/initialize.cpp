#include "model/initialize.h"

#include <map>

#include "arch/inventory.h"
#include "arch/width_scaling.h"
#include "base/random.h"

namespace athanor::inline model {
void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters, double width_ratio) {
  std::map<std::string, Role> roles;
  for (const auto& spec : make_inventory(model)) roles.emplace(spec.name, spec.role);
  for (const BucketEntry& entry : parameters.table()) {
    const CounterRandom random(seed, entry.name);
    const Role role = roles.at(entry.name);
    const bool is_norm = role == Role::kNorm || role == Role::kQkNorm;
    const double factor = initial_factor(width_class(model, entry.name, role), width_ratio);
    parameters.fill_master(entry.name, [&](int64_t first, std::span<float> out) {
      if (is_norm) {
        std::ranges::fill(out, static_cast<float>(factor));
        return;
      }
      for_each_run(entry, first, static_cast<int64_t>(out.size()), [&](int64_t global, int64_t at, int64_t count) {
        const auto begin = static_cast<uint64_t>(global);
        random.fill_normal(out.data() + at, begin, begin + static_cast<uint64_t>(count),
                           model.initializer_range * factor);
      });
    });
  }
}

}  // namespace athanor::inline model
