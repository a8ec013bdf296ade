#include "arch/blocks/feed_forward.h"

#include "config/families.h"

namespace athanor::inline arch {

void FeedForwardSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  for (const LinearSpec* linear : {&gate, &up, &down}) all.push_back(linear->parameter());
}

double FeedForwardSpec::flops(double tokens) const {
  return gate.flops(tokens) + up.flops(tokens) + down.flops(tokens);
}

FeedForwardSpec make_feed_forward(const ModelConfig& m, int64_t layer, const std::string& name, int64_t width) {
  const FamilyNames& names = family_of(m).names;
  return {.name = name,
          .gate = {name + "." + names.gate, width, m.hidden_size, Role::kGate, layer, 0},
          .up = {name + "." + names.up, width, m.hidden_size, Role::kUp, layer, 0},
          .down = {name + "." + names.down, m.hidden_size, width, Role::kDown, layer, 1}};
}

}  // namespace athanor::inline arch
