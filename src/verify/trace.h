#pragma once
// The trace of one run of the small model, step by step: numbers, gradients, parameters. Each rank keeps the parts that
// it holds and writes them into a file; reading joins these parts into whole tensors.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "train/train_step.h"
#include "verify/traced_tensor.h"

namespace athanor::inline verify {

/// The kind of the gradients of a step, summed over ranks (WholeTrace::values).
inline constexpr const char* kGradKind = "grad";

/// The numbers that a rank reports of a step, for the whole batch. Every rank should report the same.
struct StepNumbers {
  /// the loss as mean over targets, the others as sums over layers and sequences or tokens (LossParts, RouterCounts)
  double loss = 0, aux = 0, z = 0, entropy = 0;
  double grad_norm = 0, lr = 0;
  int64_t targets = 0;
  std::vector<int64_t> chosen, taken;   ///< [sparse layers, experts], row-major; empty for dense models
  std::vector<int64_t> moved, dropped;  ///< [sparse layers]; empty for dense models

  bool operator==(const StepNumbers&) const = default;
};
StepNumbers numbers_of(const StepReport& report);

/// The recording of one rank.
class Trace {
 public:
  /// Add the next step: the first call is for step 1.
  void add_step(const StepReport& report) { add_step(numbers_of(report)); }
  void add_step(StepNumbers numbers) { steps_.push_back(std::move(numbers)); }
  /// Copies the pieces, whose tensors are named "KIND/NAME", as they are at `step`. @param step  0: before the first
  /// update.
  void add_pieces(int64_t step, const std::vector<PieceView>& pieces);
  /// Records a value of which several ranks hold a copy under the same name. If their `bytes` differ,
  /// WholeTrace::faults reports it.
  void add_copy(const std::string& name, const void* bytes, size_t num_bytes);

  /// Writes the file. @throws IoError.
  void write(const std::filesystem::path& path) const;

 private:
  friend class WholeTrace;
  struct Held {
    std::string tensor;
    Slice slice;
    std::vector<float> values;
  };
  static Trace read(const std::filesystem::path& path);

  std::vector<StepNumbers> steps_;
  std::vector<Held> held_;
  std::vector<TracedTensor> copies_;
};

/// The trace of all ranks.
class WholeTrace {
 public:
  /// Reads "rank-0.trace" … of `folder`. @throws IoError if one is missing, DataError if one is cut off.
  static WholeTrace read(const std::filesystem::path& folder, int num_ranks);
  /// Returns the name of a rank's file in the folder: "rank-3.trace".
  static std::string file_name(int rank);

  int64_t num_steps() const { return static_cast<int64_t>(steps_.size()); }
  /// Returns the numbers of a step (1-based) as rank 0 reported them.
  const StepNumbers& step(int64_t number) const { return steps_.at(static_cast<size_t>(number) - 1); }

  /// Returns the whole tensor "KIND/NAME" as it was added for a step, row-major; empty if no rank holds any of it.
  /// @param kind  "grad" (summed over ranks), "master" or "exp_avg_sq" (after the step's update), …
  const std::vector<float>& values(int64_t step, const std::string& kind, const std::string& name) const;

  /// Returns the inconsistencies, a line each: ranks that report different numbers, elements that no rank or two ranks
  /// hold, copies that are not equal.
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  void join(const std::vector<Trace>& ranks);
  void compare_reports(const std::vector<Trace>& ranks);
  void compare_copies(const std::vector<Trace>& ranks);

  std::vector<StepNumbers> steps_;
  std::map<std::string, std::vector<float>> tensors_;
  std::vector<std::string> faults_;
};

}  // namespace athanor::inline verify
