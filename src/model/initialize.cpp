#include "model/initialize.h"

#include "base/random.h"

namespace athanor {

void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters) {
  for (const auto& spec : make_inventory(model)) {
    float* value = parameters.master_of(spec.name).data_ptr<float>();
    if (spec.is_norm()) {
      std::fill_n(value, spec.num_elements(), 1.0f);
      continue;
    }
    const CounterRandom random(seed, spec.name);
    ops::for_rows(spec.num_elements(), 1, [&](int64_t begin, int64_t end) {
      random.fill_normal(value + begin, static_cast<uint64_t>(begin), static_cast<uint64_t>(end),
                         model.initializer_range);
    });
  }
  parameters.refresh_compute();
}

}  // namespace athanor
