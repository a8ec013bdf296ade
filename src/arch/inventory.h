#pragma once
// The inventory of a model: every parameter, as it follows from the configuration. The model, the plans of its memory,
// checkpoints and exports all use this one list.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor::inline arch {

/// The function of a parameter; its initialisation and its parallelism follow from it. In the shapes V is vocab_size,
/// D hidden_size, E num_experts, and F the intermediate size: that of a dense layer, or of one expert.
enum class Role {
  kEmbedding,     // [V, D]
  kNorm,          // [D], a scale
  kQkNorm,        // a scale: [heads * head_dim] for queries and [kv_heads * head_dim] for keys, or [head_dim], which
                  // all heads share
  kQuery,         // [heads * head_dim, D]
  kKey,           // [kv_heads * head_dim, D]
  kValue,         // [kv_heads * head_dim, D]
  kAttentionOut,  // [D, heads * head_dim]
  kRouter,        // [E, D]
  kGate,          // [F, D], of a dense layer, or of all shared experts as one dense layer (F is then their sum)
  kUp,            // [F, D]
  kDown,          // [D, F]
  kExpertGate,    // [E, F, D]
  kExpertUp,      // [E, F, D]
  kExpertDown,    // [E, D, F]
  kOutput,        // [V, D]
};

/// The dim of a tensor, from 0, that tensor ranks or expert ranks divide among them; -1 if they do not divide it.
struct ShardedDims {
  int tensor = -1;
  int expert = -1;
};

struct ParameterSpec {
  std::string name;            ///< logical name: that in `transformers`, with the experts of a layer stacked into one
  std::vector<int64_t> shape;  ///< global shape, before any cut
  Role role;
  int64_t layer;  ///< from 0; -1 if it belongs to no layer
  ShardedDims sharded;

  int64_t num_elements() const;
  bool is_expert() const { return sharded.expert >= 0; }
  bool is_norm() const { return role == Role::kNorm || role == Role::kQkNorm; }
};

/// Returns every parameter in the order of the forward pass. A tied output layer is not listed: it is the embedding.
/// @throws ConfigError if model.family does not exist.
std::vector<ParameterSpec> make_inventory(const ModelConfig& model);

/// Returns the number of elements of all parameters.
int64_t count_parameters(const ModelConfig& model);

/// Returns the number of elements that a token passes through: k of the E experts, and everything else (the "active"
/// parameters of the papers).
int64_t count_active_parameters(const ModelConfig& model);

/// Returns the names of all roles in the configuration (optimizer.groups[].match): embedding, norm, qk_norm, query, …,
/// output.
std::vector<std::string> role_names();

/// Returns the role of this name, or nothing if there is none. No parameter has such a name, since all have a dot.
std::optional<Role> find_role(const std::string& name);

/// Returns whether a word of optimizer.groups[].match takes a parameter: the name of its role, or a pattern of its name
/// (base/text.h: matches_wildcard).
bool takes_parameter(const std::string& word, const ParameterSpec& spec);

}  // namespace athanor::inline arch
