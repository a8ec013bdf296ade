#pragma once
// The norms of a model, alone and together with the addition before them.

#include <optional>

#include "arch/blocks/norm.h"
#include "ops/norm.h"
#include "parallel/parameters.h"

namespace athanor::inline blocks {

/// The residual stream, and the branch that has yet to be added to it: the next norm does both in one pass.
struct Residual {
  /// [B, T, D], or a tensor rank's tokens [1, B·T/n, D] under sequence parallelism (parallel/tensor_parallel.h).
  /// `branch` is undefined if there is nothing to add.
  Tensor x, branch;

  Tensor sum() const { return branch.defined() ? x + branch : x; }
};

class NormBlock;

/// Returns x + branch, and what a part of a layer reads: its norm, or the sum itself if the part has no norm before it.
ops::NormedSum read_stream(const std::optional<NormBlock>& norm, const Residual& residual);
/// Returns the branch of a part that returned y: its norm, if the part has one after it.
Tensor branch_of(const std::optional<NormBlock>& norm, const Tensor& y);

class NormBlock {
 public:
  NormBlock() = default;
  /// @param parameters  those of this rank, with the norm's.
  NormBlock(const NormSpec& spec, const ParameterStore& parameters);

  Tensor of(const Tensor& x) const;
  /// Returns x + branch, and its norm.
  ops::NormedSum of(const Residual& residual) const;

 private:
  Tensor scaled(const Tensor& normed) const;

  Weight weight_, bias_;  // undefined if the norm has none
  bool is_rms_ = true;
  ops::RmsForm form_{0};
};

}  // namespace athanor::inline blocks
