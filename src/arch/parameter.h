#pragma once
// One parameter of a model, with everything that follows from its place in the model: shape, function, cuts among
// ranks, initial values, learning rate in wide models, and form in files.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline arch {

/// The function of a parameter. In the shapes V is vocab_size, D hidden_size, E num_experts, P max_position_embeddings,
/// and F the intermediate size: that of a dense layer, or of one expert.
enum class Role {
  kEmbedding,     // [V, D]
  kPositions,     // [P, D], a learned vector for each position
  kNorm,          // [D], a scale; [rank] of a latent vector
  kQkNorm,        // a scale: [heads * head_dim] for queries and [kv_heads * head_dim] for keys, or [head_dim], which
                  // all heads share
  kLatent,        // [rank, D], of what queries, or keys and values, are made; the part of keys that all heads share
  kQuery,         // [heads * head_dim, D], or [heads * head_dim, rank]
  kKey,           // [kv_heads * head_dim, D]
  kValue,         // [kv_heads * head_dim, D]
  kAttentionOut,  // [D, heads * head_dim]
  kRouter,        // [E, D], or [1, D], the gate of shared experts
  kGate,          // [F, D], of a dense layer, or of all shared experts as one dense layer (F is then their sum)
  kUp,            // [F, D]
  kDown,          // [D, F]
  kExpertGate,    // [E, F, D]
  kExpertUp,      // [E, F, D]
  kExpertDown,    // [E, D, F]
  kBias,          // one number for each output of a matrix or a norm, [E, F] or [E, D] of experts, or for each head
  kOutput,        // [V, D]
};

/// Returns the names of all roles in the configuration (optimizer.groups[].match): embedding, positions, norm, …,
/// output.
std::vector<std::string> role_names();

/// Returns the role of this name, or nothing if there is none. No parameter has such a name, since all have a dot.
std::optional<Role> find_role(const std::string& name);

/// Returns the roles of the matrices between the residual stream and itself, which Muon updates.
const std::vector<Role>& hidden_matrices();

/// The dim of a tensor, from 0, that tensor ranks or expert ranks divide among them; -1 if they do not divide it.
struct ShardedDims {
  int tensor = -1;
  int expert = -1;
};

/// What a tensor rank knows of the gradient of a parameter that tensor ranks do not divide.
enum class TensorGradient {
  kWhole,     // all of it: every rank computes the same
  kOfTokens,  // all of it, or under sequence parallelism that of its tokens
  kOfHeads,   // that of its heads
};

/// Initial values, before the factors of width scaling.
enum class Initial {
  kNormal,  // from a normal distribution with mean 0 and standard deviation model.initializer_range
  kOne,
  kZero,
};

/// How initial values and learning rate follow the model's width (arch/width_scaling.h).
enum class WidthClass { kInput, kHidden, kOutput };

/// The form of a parameter in files of `transformers`, where it is not a tensor of its own with the parameter's name
/// and shape. Experts are in hf_layout.h (checkpoint/).
struct FileForm {
  std::string fused;        ///< the tensor that it is part of; "" for one of its own
  int64_t first_row = 0;    ///< the parameter's first output in the fused tensor …
  int64_t rows = 0;         ///< … and the outputs of that
  bool transposed = false;  ///< [in, out]
  int64_t heads = 1;        ///< the number of equal parts in which the parameter's outputs lie in the file, …
  int64_t head_step = 0;    ///< … each this many outputs after the one before it
  /// The outputs of a head that positions turn, if these are not all of them. In the file they come first, and i is
  /// turned with i + rotated / 2; here i is turned with i + half of the head.
  int64_t rotated = 0;
  bool interleaved = false;  ///< in the file these outputs come last, and i is turned with i + 1
  bool stacked = false;      ///< the fused tensor has all experts, as its first dim
  int64_t row_step = 1;      ///< an output lies this many outputs after the one before it
};

struct ParameterSpec {
  std::string name;            ///< logical name: that in `transformers`, with the experts of a layer stacked into one
  std::vector<int64_t> shape;  ///< global shape, before any cut
  Role role;
  int64_t layer;  ///< from 0; -1 if it belongs to no layer
  ShardedDims sharded = {};
  bool of_key_heads = false;  ///< tensor ranks divide it by key and value heads: neighbours may hold the same one
  TensorGradient gradient = TensorGradient::kWhole;  ///< if tensor ranks do not divide it
  Initial initial = Initial::kNormal;
  double deviation = 1;  ///< the standard deviation of kNormal, in units of model.initializer_range
  WidthClass width = WidthClass::kHidden;
  FileForm form = {};

  int64_t num_elements() const;
  bool is_expert() const { return sharded.expert >= 0; }
  bool is_norm() const { return role == Role::kNorm || role == Role::kQkNorm; }
  /// True if the model's input needs it, before the first layer.
  bool is_front() const { return role == Role::kEmbedding || role == Role::kPositions; }
};

/// Returns whether a word of optimizer.groups[].match takes a parameter: the name of its role, or a pattern of its name
/// (base/text.h: matches_wildcard).
bool takes_parameter(const std::string& word, const ParameterSpec& spec);

}  // namespace athanor::inline arch
