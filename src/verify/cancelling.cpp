#include "verify/cancelling.h"

#include <algorithm>
#include <cmath>

#include "config/families.h"
#include "verify/parts.h"

namespace athanor::inline verify {
namespace {

double whole_norm(const std::vector<float>& values) {
  return norm_of(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

double CancellingSizes::size(const ParameterSpec& spec, int64_t step) const {
  switch (spec.role) {
    case Role::kQuery:
    case Role::kKey:
    case Role::kQkNorm: return of_attention(spec, step);
    case Role::kRouter: return config_.model.norm_topk_prob ? of_router(spec, step) : 0;
    default: return 0;
  }
}

double CancellingSizes::of_attention(const ParameterSpec& spec, int64_t step) const {
  const std::string prefix = spec.name.substr(0, spec.name.find("self_attn.") + 10);
  const double size =
      whole_norm(one_.values(step, kind_, prefix + "v_proj.weight")) * projected_size(prefix + "v_proj", step);
  if (spec.role == Role::kQkNorm) return size / std::sqrt(static_cast<double>(config_.model.hidden_size));
  if (family_of(config_.model).qk_norm == QkNorm::kNone) {
    return size * projected_size(prefix + (spec.role == Role::kQuery ? "k_proj" : "q_proj"), step);
  }
  return size / projected_size(prefix + (spec.role == Role::kQuery ? "q_proj" : "k_proj"), step);
}

double CancellingSizes::of_router(const ParameterSpec& spec, int64_t step) const {
  const std::string down = spec.name.substr(0, spec.name.find("gate.weight")) + "experts.down_proj.weight";
  const double one_expert =  // ‖W‖ of one expert
      whole_norm(layout_.values(step - 1, "master", down)) / std::sqrt(static_cast<double>(config_.model.num_experts));
  return whole_norm(one_.values(step, kind_, down)) * one_expert /
         std::sqrt(static_cast<double>(config_.model.expert_intermediate_size()));
}

// Returns the root mean square of a projection's output for normed tokens.
double CancellingSizes::projected_size(const std::string& projection, int64_t step) const {
  const auto& weight = layout_.values(step - 1, "master", projection + ".weight");
  const double rows = static_cast<double>(weight.size()) / static_cast<double>(config_.model.hidden_size);
  return std::max(whole_norm(weight) / std::sqrt(std::max(1.0, rows)), 1e-30);
}

}  // namespace athanor::inline verify
