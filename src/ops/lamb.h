#pragma once
// LAMB's two passes over the parts of matrices that a rank owns: the directions with the sums for norms, and the step.
// Each is one parallel loop or one launch, whatever the number of matrices.

#include <vector>

#include "kernels/matrix_part.h"
#include "ops/update_memory.h"

namespace athanor::ops {

/// Parts that one rule updates, cut into runs (kernels::kMatrixRun).
class MatrixParts {
 public:
  /// @param parts   in the order of flat memory, those of a matrix one after the other, and one at least.
  /// @param device  of the memory. The lists are sent there; the host does not wait.
  MatrixParts(std::vector<kernels::MatrixPart> parts, at::Device device);

  const std::vector<kernels::MatrixPart>& parts() const { return parts_; }
  /// The number of each part's first run, and the number of all runs.
  const std::vector<int64_t>& first_run() const { return first_run_; }
  int64_t num_runs() const { return first_run_.back(); }
  /// The same lists where the memory is, int64; undefined on the host.
  const Tensor& parts_there() const { return parts_there_; }
  const Tensor& first_run_there() const { return first_run_there_; }
  /// Returns the indices [first, last) of the parts that have elements in [begin, end) of flat memory.
  std::pair<size_t, size_t> within(int64_t begin, int64_t end) const;

 private:
  std::vector<kernels::MatrixPart> parts_;
  std::vector<int64_t> first_run_;
  Tensor parts_there_, first_run_there_;
};

/// Updates the moments, and replaces gradients by LAMB's directions.
/// @param memory   all of it: the parts have their elements in it.
/// @param squares  fp64 [matrices, 2], where the memory is: the sums of squares of masters and of directions over the
///                 parts that count are added. The sums of runs are added in order, so that threads change no bit.
void lamb_directions(const kernels::LambStep& rule, const MatrixParts& parts, const UpdateMemory& memory,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& squares, const OnDevice& there);

/// Subtracts factor · ratios[matrix] · direction from the masters in [begin, end) of the memory, and sets these
/// directions to zero.
/// @param ratios  fp32 [matrices], where the memory is.
/// @return the number of weights that changed, as forward reads them; 0 on a device.
int64_t apply_lamb(double factor, const Tensor& ratios, const MatrixParts& parts, int64_t begin, int64_t end,
                   const UpdateMemory& memory, const OnDevice& there);

}  // namespace athanor::ops
