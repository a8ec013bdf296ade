#include "arch/blocks/feed_forward.h"

namespace athanor::inline arch {

void FeedForwardSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  if (gate) gate->append_parameters(all);
  up.append_parameters(all);
  down.append_parameters(all);
}

double FeedForwardSpec::flops(double tokens) const {
  return (gate ? gate->flops(tokens) : 0) + up.flops(tokens) + down.flops(tokens);
}

FeedForwardSpec make_feed_forward(const ModelConfig& m, int64_t layer, const std::string& name, int64_t width) {
  const Family& family = family_of(m);
  const auto linear = [&](const std::string& part, int64_t rows, int64_t columns, Role role, int tensor) {
    LinearSpec spec{name + "." + part, rows, columns, role, layer, tensor};
    spec.has_bias = family.biases == Biases::kAll && !family.sparse;
    spec.form.transposed = family.transposed;
    return spec;
  };
  FeedForwardSpec f;
  f.name = name;
  f.kind = family.feed_forward;
  if (has_gate(family.feed_forward)) f.gate = linear(family.names.gate, width, m.hidden_size, Role::kGate, 0);
  f.up = linear(family.names.up, width, m.hidden_size, Role::kUp, 0);
  f.down = linear(family.names.down, m.hidden_size, width, Role::kDown, 1);
  if (f.gate && !family.names.fused_gate_up.empty()) {
    f.gate->form = {.fused = name + "." + family.names.fused_gate_up, .rows = 2 * width};
    f.up.form = f.gate->form;
    f.up.form.first_row = width;
  }
  f.down.deviation = residual_deviation(m);
  return f;
}

}  // namespace athanor::inline arch
