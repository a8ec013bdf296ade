#pragma once
// A layout in bf16 held against one rank in fp32, by the measure of one rank in bf16.
//
// A bound from worst cases has to be a few tenths in bf16, and much that is wrong is less. But how far bf16 is off need
// not be bounded: one rank in bf16 shows it, for each tensor by itself, on the same data. What a layout does wrong
// comes on top of that (noise_ratio.h). The run in fp32 that both are held against shares no rounding with either, and
// its order of sums is one rank's: nothing of parallel/ takes part in it; that it computes what a layout does is what
// the comparison in fp32 shows.

#include <map>

#include "train/verify/compare.h"
#include "train/verify/noise_ratio.h"

namespace athanor {

/// Adds up errors over data sets, so that they are compared with many numbers.
class MeasuredComparison {
 public:
  MeasuredComparison(const RunConfig& small, int data_ranks);
  /// The runs on one data set: the layout's and one rank's in bf16, one rank's in fp32.
  void add(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth);

  /// What failed. Of measured comparisons by name, since they count if they fail on other data too (kChanceOnce); what
  /// must be equal, or follows from the layout's own numbers, is a fault at once.
  struct Findings {
    Comparisons comparisons;  ///< faults: of what must be equal
    /// Measured comparisons and their lines, the one that is furthest beyond its bound first.
    std::vector<std::pair<std::string, std::string>> failed;
  };
  Findings finish();

 private:
  void add_equal(const std::string& quantity, const std::string& name, int64_t step, bool equal, double error);
  void add_bounded(const Comparison& comparison, const std::string& step, bool measured);
  void add_numbers(int64_t step, const StepNumbers& layout, const StepNumbers& one, const StepNumbers& truth);
  void add_counts(int64_t step, const StepNumbers& layout, const StepNumbers& one, const StepNumbers& truth);
  void add_gradients(int64_t step, const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth);
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

}  // namespace athanor
