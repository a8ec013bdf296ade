#include "arch/blocks/sparse.h"

#include "config/families.h"

namespace athanor::inline arch {

// Tensor ranks divide the outputs of all three: of the down projection, each adds its share to its partial sum.
ParameterSpec SparseSpec::bias_of(const std::string& bias, int64_t outputs, FileForm form) const {
  form.transposed = false;
  form.fused += "_bias";
  return {.name = bias,
          .shape = {experts, outputs},
          .role = Role::kBias,
          .layer = layer,
          .sharded = {.tensor = 1, .expert = 0},
          .initial = Initial::kZero,
          .width = WidthClass::kInput,
          .form = form};
}

void SparseSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  router.append_parameters(all);
  const int64_t f = expert_width, d = width;
  const auto add = [&](const std::string& matrix, Role role, int64_t rows, int64_t columns, const FileForm& form) {
    all.push_back({.name = matrix,
                   .shape = {experts, rows, columns},
                   .role = role,
                   .layer = layer,
                   .sharded = {.tensor = role == Role::kExpertDown ? 2 : 1, .expert = 0},
                   .deviation = role == Role::kExpertDown ? down_deviation : 1,
                   .form = form});
  };
  if (!gate.empty()) add(gate, Role::kExpertGate, f, d, gate_form);
  add(up, Role::kExpertUp, f, d, up_form);
  add(down, Role::kExpertDown, d, f, down_form);
  if (!down_bias.empty()) {
    if (!gate.empty()) all.push_back(bias_of(gate_bias, f, gate_form));
    all.push_back(bias_of(up_bias, f, up_form));
    all.push_back(bias_of(down_bias, d, down_form));
  }
  if (shared) shared->append_parameters(all);
  if (shared_gate) shared_gate->append_parameters(all);
}

void SparseSpec::check_tensor_ranks(int64_t degree, Findings& found) const {
  check_width(width_key, expert_width, "experts", degree, found);
  if (!down_bias.empty()) check_width("model.hidden_size", width, "the biases of experts", degree, found);
  if (shared) shared->check_tensor_ranks(degree, found);
}

double SparseSpec::flops(double tokens) const {
  const double of_expert =
      (gate.empty() ? 2 : 3) * matmul_flops(tokens, static_cast<double>(expert_width), static_cast<double>(width));
  return static_cast<double>(choices) * of_expert + (shared ? shared->flops(tokens) : 0) + router.flops(tokens) +
         (shared_gate ? shared_gate->flops(tokens) : 0);
}

namespace {

// Sets the forms in files that have all experts in two tensors, as [in, out], gate and up in turns.
void stack(SparseSpec& s, const std::string& gate_up, const std::string& down) {
  s.gate_form = {.fused = gate_up, .rows = 2 * s.expert_width, .transposed = true, .stacked = true, .row_step = 2};
  s.up_form = s.gate_form;
  s.up_form.first_row = 1;
  s.down_form = {.fused = down, .rows = s.width, .transposed = true, .stacked = true};
}

// OpenAI's gpt-oss; the numbers of its class where the model has none.
GatedUnit clamped_swiglu(const ModelConfig& m) {
  return {.slope = m.swiglu_alpha > 0 ? static_cast<float>(m.swiglu_alpha) : 1.702F,
          .limit = m.swiglu_limit > 0 ? static_cast<float>(m.swiglu_limit) : 7.0F,
          .offset = 1};
}

}  // namespace

SparseSpec make_sparse(const ModelConfig& m, int64_t layer, const std::string& name) {
  const Family& family = family_of(m);
  const FamilyNames& names = family.names;
  const std::string experts = name + "." + names.experts + ".";
  SparseSpec s;
  s.name = name;
  s.layer = layer;
  s.experts = m.num_experts, s.choices = m.num_experts_per_tok;
  s.width = m.hidden_size, s.expert_width = m.expert_intermediate_size();
  s.router = {name + "." + names.router, s.experts, s.width, Role::kRouter, layer};
  if (has_gate(family.feed_forward)) s.gate = experts + names.gate + ".weight";
  s.up = experts + names.up + ".weight";
  s.down = experts + names.down + ".weight";
  if (family.expert_biases) {
    s.gate_bias = experts + names.gate + ".bias", s.up_bias = experts + names.up + ".bias";
    s.down_bias = experts + names.down + ".bias";
    s.router.has_bias = true;
    s.router.initial_bias = Initial::kNormal;
  }
  if (!names.stacked_down.empty()) stack(s, experts + names.stacked_gate_up, experts + names.stacked_down);
  s.down_deviation = residual_deviation(m);
  if (family.clamps_swiglu) s.unit = clamped_swiglu(m);
  s.width_key = m.moe_intermediate_size > 0 ? "model.moe_intermediate_size" : "model.intermediate_size";
  // Every token passes through the shared experts: together they are one dense layer.
  if (m.num_shared_experts > 0)
    s.shared = make_feed_forward(m, layer, name + "." + names.shared_experts, m.shared_intermediate_size());
  // Shared experts together are a whole number of experts wide, unless their width is given.
  if (s.shared) {
    s.shared->width_key = m.shared_expert_intermediate_size > 0 ? "model.shared_expert_intermediate_size" : "";
    s.shared->blocks = "shared experts";
  }
  if (s.shared && !names.shared_gate.empty())
    s.shared_gate = {name + "." + names.shared_gate, 1, s.width, Role::kRouter, layer};
  s.score = m.score().value_or(RouterScore::kSoftmax);
  s.norm_topk_prob = m.norms_topk();
  s.scaling_factor = m.routed_scaling_factor;
  s.groups = m.n_group, s.groups_taken = m.topk_group;
  return s;
}

}  // namespace athanor::inline arch
