#include "arch/blocks/sparse.h"

#include "config/families.h"

namespace athanor::inline arch {

void SparseSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  router.append_parameters(all);
  const int64_t e = experts, f = expert_width, d = width;
  all.push_back({gate, {e, f, d}, Role::kExpertGate, layer, {.tensor = 1, .expert = 0}});
  all.push_back({up, {e, f, d}, Role::kExpertUp, layer, {.tensor = 1, .expert = 0}});
  all.push_back({down, {e, d, f}, Role::kExpertDown, layer, {.tensor = 2, .expert = 0}});
  if (shared) shared->append_parameters(all);
  if (shared_gate) shared_gate->append_parameters(all);
}

double SparseSpec::flops(double tokens) const {
  const double of_expert = 3 * matmul_flops(tokens, static_cast<double>(expert_width), static_cast<double>(width));
  return static_cast<double>(choices) * of_expert + (shared ? shared->flops(tokens) : 0) + router.flops(tokens) +
         (shared_gate ? shared_gate->flops(tokens) : 0);
}

SparseSpec make_sparse(const ModelConfig& m, int64_t layer, const std::string& name) {
  const FamilyNames& names = family_of(m).names;
  const std::string experts = name + "." + names.experts + ".";
  SparseSpec s;
  s.name = name;
  s.layer = layer;
  s.experts = m.num_experts, s.choices = m.num_experts_per_tok;
  s.width = m.hidden_size, s.expert_width = m.expert_intermediate_size();
  s.router = {name + "." + names.router, s.experts, s.width, Role::kRouter, layer};
  s.gate = experts + names.gate + ".weight", s.up = experts + names.up + ".weight";
  s.down = experts + names.down + ".weight";
  // Every token passes through the shared experts: together they are one dense layer.
  if (m.num_shared_experts > 0)
    s.shared = make_feed_forward(m, layer, name + "." + names.shared_experts, m.shared_intermediate_size());
  if (s.shared && !names.shared_gate.empty())
    s.shared_gate = {name + "." + names.shared_gate, 1, s.width, Role::kRouter, layer};
  s.score = m.score().value_or(RouterScore::kSoftmax);
  s.norm_topk_prob = m.norms_topk();
  s.scaling_factor = m.routed_scaling_factor;
  s.groups = m.n_group, s.groups_taken = m.topk_group;
  return s;
}

}  // namespace athanor::inline arch
