#pragma once
// The parameters of a linear layer, of which every block with matrices consists.

#include "arch/parameter.h"
#include "config/findings.h"

namespace athanor::inline arch {

/// y = x Wᵀ, plus a bias if it has one.
struct LinearSpec {
  std::string name;  ///< "model.layers.3.self_attn.q_proj"
  int64_t rows = 0, columns = 0;
  Role role;
  int64_t layer = -1;
  /// The dim of W that tensor ranks divide. If it is 0, they divide the bias too; if it is 1, the bias is added to
  /// their sum.
  int tensor = -1;
  bool of_key_heads = false;
  bool has_bias = false;
  double deviation = 1;  ///< ParameterSpec::deviation of the matrix
  Initial initial_bias = Initial::kZero;
  TensorGradient gradient = TensorGradient::kWhole;  ///< ParameterSpec::gradient of the matrix
  FileForm form = {};                                ///< the form of the matrix in files; the bias lies beside it

  std::string weight() const { return name + ".weight"; }
  std::string bias() const { return name + ".bias"; }
  void append_parameters(std::vector<ParameterSpec>& all) const;
  /// Returns the forward FLOPs for `tokens` tokens.
  double flops(double tokens) const;
};

/// Adds that tensor ranks cannot divide a width, which the configuration calls `key`, in blocks of this kind
/// ("experts").
inline void check_width(const std::string& key, int64_t width, const char* blocks, int64_t degree, Findings& found) {
  found.require(width % degree == 0,
                "parallelism.tensor_parallel_degree ({}) must divide {} ({}), of which each rank has a part in {}; "
                "lower the degree, or make the width a multiple of {}",
                degree, key, width, blocks, degree);
}

/// Returns the FLOPs of a product of matrices [m, k] and [k, n]: one multiply-add is two.
inline double matmul_flops(double m, double n, double k) { return 2 * m * n * k; }

}  // namespace athanor::inline arch
