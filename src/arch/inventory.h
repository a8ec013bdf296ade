#pragma once
// The one inventory of a model: every parameter, from the configuration. Model, plan, checkpoint and export read it.

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor {

/// What a parameter does; initialisation, weight decay and parallelism follow from it.
enum class Role {
  kEmbedding,     // [V, D]
  kNorm,          // [D], a scale
  kQkNorm,        // [heads * head_dim], a scale over the whole projection, or [head_dim], one for every head
  kQuery,         // [heads * head_dim, D]
  kKey,           // [kv_heads * head_dim, D]
  kValue,         // [kv_heads * head_dim, D]
  kAttentionOut,  // [D, heads * head_dim]
  kRouter,        // [E, D]
  kGate,          // [F, D], of a dense layer or of the shared experts together
  kUp,            // [F, D]
  kDown,          // [D, F]
  kExpertGate,    // [E, F, D]
  kExpertUp,      // [E, F, D]
  kExpertDown,    // [E, D, F]
  kOutput,        // [V, D]
};

/// Which dim of a tensor each kind of parallelism cuts; -1 where it holds the whole.
struct ShardedDims {
  int tensor = -1;
  int expert = -1;
};

struct ParameterSpec {
  std::string name;            ///< logical: the name in `transformers`, experts stacked
  std::vector<int64_t> shape;  ///< global
  Role role;
  int64_t layer;  ///< -1 outside the layers
  ShardedDims sharded;

  int64_t num_elements() const;
  bool is_expert() const { return sharded.expert >= 0; }
  bool is_norm() const { return role == Role::kNorm || role == Role::kQkNorm; }
};

/// Every parameter in the order of the forward pass. A tied output layer is not listed: it is the embedding.
std::vector<ParameterSpec> make_inventory(const ModelConfig& model);

/// All parameters.
int64_t count_parameters(const ModelConfig& model);

/// Those a token passes through: k of the E experts, everything else whole (the papers' "active").
int64_t count_active_parameters(const ModelConfig& model);

}  // namespace athanor
