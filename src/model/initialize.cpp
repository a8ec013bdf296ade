#include "model/initialize.h"

#include <map>

#include "arch/inventory.h"
#include "arch/width_scaling.h"
#include "base/random.h"

namespace athanor::inline model {
void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters, double width_ratio) {
  std::map<std::string, ParameterSpec> specs;
  for (const auto& spec : make_inventory(model)) specs.emplace(spec.name, spec);
  for (const BucketEntry& entry : parameters.table()) {
    const CounterRandom random(seed, entry.name);
    const ParameterSpec& spec = specs.at(entry.name);
    const double factor = initial_factor(spec.width, width_ratio);
    parameters.fill_master(entry.name, [&](int64_t first, std::span<float> out) {
      if (spec.initial != Initial::kNormal) {
        std::ranges::fill(out, spec.initial == Initial::kOne ? static_cast<float>(factor) : 0.0F);
        return;
      }
      for_each_run(entry, first, static_cast<int64_t>(out.size()), [&](int64_t global, int64_t at, int64_t count) {
        const auto begin = static_cast<uint64_t>(global);
        random.fill_normal(out.data() + at, begin, begin + static_cast<uint64_t>(count),
                           model.initializer_range * spec.deviation * factor);
      });
    });
  }
}

}  // namespace athanor::inline model
