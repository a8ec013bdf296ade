#pragma once
// Compares a layout in bf16 with one rank in fp32, in relation to one rank in bf16.
//
// A bound from worst cases has to be a few tenths in bf16, and many errors in a computation are smaller. But the error
// of bf16 need not be bounded: one rank in bf16 shows it, for each tensor separately, on the same data. An error that a
// layout makes is added to that (noise_ratio.h). The run in fp32 that both are compared with shares no rounding with
// either, and its order of sums is one rank's: it sends nothing. The comparison in fp32 shows that it computes what a
// layout does.

#include <map>

#include "verify/compare.h"
#include "verify/noise_ratio.h"

namespace athanor::inline verify {

/// Adds up errors over data sets, so that each comparison has many numbers.
class MeasuredComparison {
 public:
  /// @param small  the layout's run. @param data_ranks  number of its data ranks. @param on_device  it is on devices.
  MeasuredComparison(const RunConfig& small, int data_ranks, bool on_device = false);
  /// Adds the runs on one data set: the layout's and one rank's in bf16, one rank's in fp32.
  void add(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth);

  /// The comparisons that failed. Measured ones are listed by name, since they count only if they fail on other data
  /// too (kChanceOnce); a value that must be equal, or that follows from the layout's own numbers, is a fault at once.
  struct Findings {
    Comparisons comparisons;  ///< all comparisons; its faults are only those that count at once
    /// For each measured comparison that failed, its name and the line that reports it; the one that is furthest beyond
    /// its bound comes first.
    std::vector<std::pair<std::string, std::string>> failed;
  };
  /// Returns the findings over all data sets; to be called once, last.
  Findings finish();

 private:
  void add_equal(const std::string& quantity, const std::string& name, int64_t step, bool equal, double error);
  void add_bounded(const Comparison& comparison, const std::string& step, bool measured);
  void add_numbers(int64_t step, const StepNumbers& layout, const StepNumbers& one, const StepNumbers& truth);
  void add_counts(int64_t step, const StepNumbers& layout, const StepNumbers& one, const StepNumbers& truth);
  /// @param kind  of the gradients, as WholeTrace::values takes it.
  void add_gradients(int64_t step, const char* kind, const char* quantity, const WholeTrace& layout,
                     const WholeTrace& one, const WholeTrace& truth);
  void compare_initial(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth);

  struct Key {
    std::string quantity, name;
    auto operator<=>(const Key&) const = default;
  };
  RunConfig config_;
  Noise noise_;
  std::vector<ParameterSpec> inventory_;
  std::map<Key, PooledNoise> pooled_;
  std::map<std::string, Comparison> worst_;
  struct Failed {
    double share;
    std::string name, line;
  };
  std::vector<Failed> failed_;
  Findings found_;
};

}  // namespace athanor::inline verify
