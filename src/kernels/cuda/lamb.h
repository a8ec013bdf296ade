#pragma once
// LAMB on a device, for all matrices of a rule in one launch. Moments, directions and masters get the bits of
// kernels/update.h.
//
// All pointers are to the stream's memory. If `grad_scale` is not null it is used in place of the step's; if it is NaN,
// nothing changes.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/matrix_part.h"
#include "kernels/update.h"

namespace athanor::kernels::cuda {

/// Parts in the order of flat memory, those of a matrix one after the other. Neighbouring parts of a list are one too.
struct MatrixParts {
  const MatrixPart* parts;   ///< [count]
  const int64_t* first_run;  ///< [count + 1]: the number of each part's first run, and the next one's after the last
  int64_t count;
  int64_t runs;  ///< the number of runs in all parts
};

/// Updates the moments, and replaces gradients by directions.
/// @param partials  [runs, 2]: gets the sums of squares of the masters and of the directions of each run, in double;
///                  zeros if its part is not counted.
void lamb_directions(const Stream& stream, const LambStep& step, const MatrixParts& parts, const Masters& masters,
                     float* exp_avg, float* exp_avg_sq, float* grad, double* partials, const float* grad_scale);

/// Adds the partial sums of each matrix to squares, [matrices, 2], in an order that depends only on the parts.
void add_lamb_partials(const Stream& stream, const MatrixParts& parts, const double* partials, double* squares);

/// Subtracts factor · ratios[matrix] · direction from the masters in [begin, end) of flat memory, and sets these
/// directions to zero; the product of the two numbers is taken in double. *changed is increased by the number of
/// weights that changed.
void apply_lamb(const Stream& stream, double factor, const float* ratios, const MatrixParts& parts, int64_t begin,
                int64_t end, const Masters& masters, float* direction, int64_t* changed, const float* grad_scale);

}  // namespace athanor::kernels::cuda
