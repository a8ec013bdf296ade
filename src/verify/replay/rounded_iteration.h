#pragma once
// Newton and Schulz's iteration in double precision, rounded where a run rounds it, and how far rounding moves its
// result.
//
// Five iterations multiply an error in the direction of a small singular value by up to 3.4445⁵ = 485. So a bound from
// worst cases is as large as the result in bf16, in which Muon multiplies by default. But the effect of rounding need
// not be bounded, because it can be drawn (Monte Carlo arithmetic: Parker 1997). Each draw rounds every number that a
// run stores up or down at random, with the probability of its distance, and moves sums by what fp32 rounds in them.
// The draws are as far from the result that is rounded to nearest as two roundings of one number are from each other.
// So is a run on a device, which rounds at other places. A run on CPUs rounds to nearest at the same places as the
// result does. It is closer to it, except where small singular values consist of rounding alone (an expert with few
// tokens): there one number that is rounded the other way moves the result by about a deviation.

#include <cstdint>
#include <vector>

#include "config/optimizer_config.h"

namespace athanor::inline verify {

/// Matrices of one shape, row-major, one after the other.
struct Matrices {
  int64_t count = 0, rows = 0, columns = 0;
  std::vector<double> values, errors;  ///< the errors are bounds on what each value is off by in a run
};

struct RoundedResult {
  std::vector<double> values;
  std::vector<double>
      deviations;  ///< for each matrix the root mean square, over the draws, of its error's Frobenius norm
};

/// Makes each matrix orthogonal by the settings of optimizer.newton_schulz_*. The draws are functions of counters, so
/// that a replay has the same bits each time.
RoundedResult orthogonalize_rounded(const Matrices& matrices, const OptimizerConfig& config);

}  // namespace athanor::inline verify
