#include "arch/parameter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace athanor::inline arch {
namespace {

constexpr std::array<std::pair<const char*, Role>, 18> kNames{{{"embedding", Role::kEmbedding},
                                                               {"positions", Role::kPositions},
                                                               {"norm", Role::kNorm},
                                                               {"qk_norm", Role::kQkNorm},
                                                               {"latent", Role::kLatent},
                                                               {"query", Role::kQuery},
                                                               {"key", Role::kKey},
                                                               {"value", Role::kValue},
                                                               {"attention_out", Role::kAttentionOut},
                                                               {"router", Role::kRouter},
                                                               {"gate", Role::kGate},
                                                               {"up", Role::kUp},
                                                               {"down", Role::kDown},
                                                               {"expert_gate", Role::kExpertGate},
                                                               {"expert_up", Role::kExpertUp},
                                                               {"expert_down", Role::kExpertDown},
                                                               {"bias", Role::kBias},
                                                               {"output", Role::kOutput}}};

}  // namespace

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const auto& [name, role] : kNames) names.emplace_back(name);
  return names;
}

std::optional<Role> find_role(const std::string& name) {
  const auto* found = std::ranges::find_if(kNames, [&](const auto& each) { return name == each.first; });
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<Role>& hidden_matrices() {
  static const std::vector<Role> roles = {Role::kLatent,       Role::kQuery,    Role::kKey,       Role::kValue,
                                          Role::kAttentionOut, Role::kGate,     Role::kUp,        Role::kDown,
                                          Role::kExpertGate,   Role::kExpertUp, Role::kExpertDown};
  return roles;
}

int64_t ParameterSpec::num_elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

bool takes_parameter(const std::string& word, const ParameterSpec& spec) {
  const auto role = find_role(word);
  return role ? spec.role == *role : matches_wildcard(word, spec.name);
}

}  // namespace athanor::inline arch
