#pragma once
// The inventory of a model: every parameter, as it follows from the configuration. Model, plan, checkpoint and export
// all use this one list.

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor {

/// The function of a parameter; its initialisation and its parallelism follow from it.
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

/// The dim of a tensor that each kind of parallelism cuts; -1 if that kind does not cut it.
struct ShardedDims {
  int tensor = -1;
  int expert = -1;
};

struct ParameterSpec {
  std::string name;            ///< logical name: that in `transformers`, with the experts stacked into one
  std::vector<int64_t> shape;  ///< global shape, before any cut
  Role role;
  int64_t layer;  ///< -1 if it belongs to no layer
  ShardedDims sharded;

  int64_t num_elements() const;
  bool is_expert() const { return sharded.expert >= 0; }
  bool is_norm() const { return role == Role::kNorm || role == Role::kQkNorm; }
};

/// Returns every parameter in the order of the forward pass. A tied output layer is not listed: it is the embedding.
std::vector<ParameterSpec> make_inventory(const ModelConfig& model);

/// Returns the number of elements of all parameters.
int64_t count_parameters(const ModelConfig& model);

/// Returns the number of elements that a token passes through: k of the E experts, and everything else (the "active"
/// parameters of the papers).
int64_t count_active_parameters(const ModelConfig& model);

}  // namespace athanor
