#pragma once
// The parameters of a linear layer, of which every block with matrices consists.

#include "arch/parameter.h"

namespace athanor::inline arch {

/// y = x Wᵀ, plus a bias if it has one.
struct LinearSpec {
  std::string name;  ///< "model.layers.3.self_attn.q_proj"
  int64_t rows = 0, columns = 0;
  Role role;
  int64_t layer = -1;
  bool has_bias = false;
  /// The dim of W that tensor ranks divide. If it is 0, they divide the bias too; if it is 1, the bias is added after
  /// their sum.
  int tensor = -1;
  bool of_key_heads = false;
  FileForm form = {};

  std::string weight() const { return name + ".weight"; }
  std::string bias() const { return name + ".bias"; }
  void append_parameters(std::vector<ParameterSpec>& out) const;
};

}  // namespace athanor::inline arch
