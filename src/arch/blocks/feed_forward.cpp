#include "arch/blocks/feed_forward.h"

#include "arch/blocks/flops.h"

namespace athanor::inline arch {

std::vector<ParameterSpec> FeedForwardSpec::parameters() const {
  std::vector<ParameterSpec> all;
  if (gate) gate->append_parameters(all);
  up.append_parameters(all);
  down.append_parameters(all);
  return all;
}

double FeedForwardSpec::flops(double tokens) const {
  return (gate ? linear_flops(*gate, tokens) : 0) + linear_flops(up, tokens) + linear_flops(down, tokens);
}

FeedForwardSpec make_feed_forward(const ModelConfig& m, int64_t layer, const std::string& name, int64_t width) {
  const Family& family = family_of(m);
  const auto linear = [&](const std::string& part, int64_t rows, int64_t columns, Role role, int tensor) {
    LinearSpec spec{name + "." + part, rows, columns, role, layer, family.biases, tensor};
    spec.form.transposed = family.transposed;
    return spec;
  };
  FeedForwardSpec f;
  f.name = name;
  f.activation = family.activation;
  if (family.gated) f.gate = linear(family.names.gate, width, m.hidden_size, Role::kGate, 0);
  f.up = linear(family.names.up, width, m.hidden_size, Role::kUp, 0);
  f.down = linear(family.names.down, m.hidden_size, width, Role::kDown, 1);
  return f;
}

}  // namespace athanor::inline arch
