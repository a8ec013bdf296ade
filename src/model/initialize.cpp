#include "model/initialize.h"

#include "base/random.h"

namespace athanor {
namespace {

// Where the held slice begins in the whole tensor, in elements. A slice of the first dim is contiguous there.
uint64_t first_element(const BucketEntry& entry) {
  int64_t row = 1;
  for (size_t d = 1; d < entry.global_shape.size(); ++d) {
    ATHANOR_ASSERT(entry.offset[d] == 0 && entry.extent[d] == entry.global_shape[d]);
    row *= entry.global_shape[d];
  }
  return static_cast<uint64_t>(entry.offset[0] * row);
}

}  // namespace

void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters) {
  for (const auto& spec : make_inventory(model)) {
    const CounterRandom random(seed, spec.name);
    const uint64_t slice = first_element(parameters.entry(spec.name));
    parameters.fill_master(spec.name, [&](int64_t first, std::span<float> out) {
      const uint64_t begin = slice + static_cast<uint64_t>(first);
      if (spec.is_norm()) {
        std::ranges::fill(out, 1.0f);
      } else {
        random.fill_normal(out.data(), begin, begin + out.size(), model.initializer_range);
      }
    });
  }
}

}  // namespace athanor
