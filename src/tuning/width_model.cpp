#include "tuning/width_model.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "config/checks.h"
#include "layout/layout.h"

namespace athanor::inline tuning {

RunConfig with_width(const RunConfig& config, int64_t width, int num_ranks) {
  RunConfig scaled = config;
  ModelConfig& model = scaled.model;
  const int64_t whole = model.hidden_size, head_dim = model.head_dim();
  int64_t* const numbers[] = {&model.num_attention_heads, &model.num_key_value_heads, &model.intermediate_size,
                              &model.moe_intermediate_size};
  int64_t unit = 1;
  for (const int64_t* number : numbers) unit = std::lcm(unit, whole / std::gcd(whole, *number));
  ATHANOR_CHECK(
      width % unit == 0,
      "--widths {}: with model.hidden_size {}, num_attention_heads {}, num_key_value_heads {} and "
      "intermediate_size {} the heads and feed-forward layers are whole at multiples of {}; name some of these",
      width, whole, model.num_attention_heads, model.num_key_value_heads, model.intermediate_size, unit);
  for (int64_t* number : numbers) *number = *number * width / whole;
  model.hidden_size = width;
  if (model.attention_head_dim > 0) model.attention_head_dim = head_dim;
  auto faults = find_contradictions(scaled);
  if (faults.empty()) std::ranges::move(find_layout_faults(scaled, num_ranks), std::back_inserter(faults));
  ATHANOR_CHECK(faults.empty(), "--widths {}: {}", width, join(faults, "; "));
  return scaled;
}

}  // namespace athanor::inline tuning
