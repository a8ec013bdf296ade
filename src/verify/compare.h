#pragma once
// Compares a layout's run with the reference's: numbers, gradients and parameters, each with its bound.
//
// The reference takes each step from the parameters that the layout had before that step. So a step's bounds are those
// of one step, whatever came before, and what the layout carries from step to step is compared with its own gradients
// (own_gradients.h).

#include <cstdint>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "verify/noise.h"
#include "verify/trace.h"

namespace athanor::inline verify {

// The names of the quantities that are compared, as the report shows them.
inline constexpr const char *kFirstParameters = "initial parameters", *kNumbers = "loss and its parts",
                            *kCounts = "expert counts", *kFirstGradients = "gradients, step 1",
                            *kLaterGradients = "gradients, later", *kNormQuantity = "gradient norm",
                            *kHessianQuantity = "Hessians", *kParametersQuantity = "parameters";

/// The comparison of one quantity that came closest to its bound, or went furthest beyond it.
struct Comparison {
  std::string quantity;  ///< "gradients, step 1"
  std::string name;      ///< the parameter or number; for experts with the expert's index: "...gate_proj.weight[3]"
  int64_t step = 0;      ///< from 1; 0: before the first update, or (in bf16) several steps together
  double error = 0;      ///< relative to the size of the number or tensor
  double bound = 0;      ///< largest error that is allowed; 0: must be equal
  int64_t compared = 0;  ///< number of numbers or tensors that were compared

  double share() const { return bound > 0 ? error / bound : error > 0 ? 1e300 : 0; }
};

struct Comparisons {
  std::vector<Comparison> worst;  ///< one for each quantity, in the order of a step
  /// a line for each comparison that failed, with its name; empty: the two runs agree
  std::vector<std::string> faults;
  /// True if all agrees up to a step in which at most two tokens seem to have gone to other experts because of scores
  /// that are equal except for rounding. A real error fails again on other data.
  bool near_tie = false;
};

/// Compares the traces of two runs in fp32.
/// @param small  the run that `layout` is a trace of.
/// @param data_ranks  number of its data ranks.
/// @param one  the trace of the same run on one rank, or by portable forms, which follows `layout` (trace_reference).
/// @param device  of the ranks that `layout` is of.
Comparisons compare_traces(const RunConfig& small, int data_ranks, const WholeTrace& layout, const WholeTrace& one,
                           Reference reference = Reference::kOneRank, c10::Device device = c10::kCPU);

/// Returns a line for each number, gradient or parameter whose bits differ, in the first step that has any; empty if
/// all are equal.
std::vector<std::string> find_bit_differences(const RunConfig& small, const WholeTrace& a, const WholeTrace& b);

struct CountDifference {
  std::string name;  ///< "chosen", or with the first difference: "chosen (sparse layer 1, expert 0: 22 instead of 21)"
  double error = 0;  ///< sum of the absolute differences as a share of the sum of the expected counts; 0: equal
};

/// Compares how many tokens each expert of each layer got in two runs.
/// @param what  name of what is counted.
/// @param counts, expected  for each sparse layer in order, a count for each expert, or one count for the layer.
CountDifference compare_expert_counts(const std::string& what, const std::vector<int64_t>& counts,
                                      const std::vector<int64_t>& expected, int64_t num_sparse_layers);

}  // namespace athanor::inline verify
