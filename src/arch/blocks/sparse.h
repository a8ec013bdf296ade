#pragma once
// A sparse layer: a router, experts of which each token takes some, and shared experts that every token takes.

#include <optional>

#include "arch/blocks/feed_forward.h"
#include "base/gated_unit.h"

namespace athanor::inline arch {

struct SparseSpec {
  std::string name;  ///< "model.layers.3.mlp"
  int64_t layer = 0;
  int64_t experts = 0, choices = 0;     ///< E, and the K that a token chooses
  int64_t width = 0, expert_width = 0;  ///< D and F
  LinearSpec router;
  std::string gate, up, down;  ///< names of the stacked experts' parameters; gate "": of two matrices …
  std::string gate_bias, up_bias, down_bias;  ///< … and of their biases; "": they have none
  std::string width_key;                      ///< the configuration's key for their inner columns
  double down_deviation = 1;                  ///< ParameterSpec::deviation of their last matrix
  GatedUnit unit;                             ///< between their products
  FileForm gate_form, up_form, down_form;     ///< their forms in files
  std::optional<FeedForwardSpec> shared;      ///< all shared experts together, as one dense layer
  std::optional<LinearSpec> shared_gate;      ///< [1, D]: the sigmoid of its output scales what they return
  RouterScore score = RouterScore::kSoftmax;
  bool norm_topk_prob = false;
  double scaling_factor = 1;
  int64_t groups = 0, groups_taken = 0;  ///< groups of experts, from which a token takes some first; 0: none

  void append_parameters(std::vector<ParameterSpec>& all) const;
  /// Returns the forward FLOPs of router, chosen and shared experts for `tokens` tokens.
  double flops(double tokens) const;
  /// Adds why its columns cannot be divided among as many tensor ranks.
  void check_tensor_ranks(int64_t degree, Findings& found) const;

 private:
  ParameterSpec bias_of(const std::string& bias, int64_t outputs, FileForm form) const;
};

/// Returns the sparse layer of a model. @param name  "model.layers.3.mlp"
SparseSpec make_sparse(const ModelConfig& model, int64_t layer, const std::string& name);

}  // namespace athanor::inline arch
