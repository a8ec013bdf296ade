#include "model/initialize.h"

#include "base/random.h"

namespace athanor {

void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters) {
  for (const auto& spec : make_inventory(model)) {
    const CounterRandom random(seed, spec.name);
    parameters.fill_master(spec.name, [&](int64_t first, std::span<float> out) {
      const auto begin = static_cast<uint64_t>(first);
      if (spec.is_norm()) {
        std::ranges::fill(out, 1.0f);
      } else {
        random.fill_normal(out.data(), begin, begin + out.size(), model.initializer_range);
      }
    });
  }
}

}  // namespace athanor
