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

namespace athanor {

/// The numbers that a rank reports of a step, for the whole batch. Every rank should report the same.
struct StepNumbers {
  double loss = 0, aux = 0, z = 0, entropy = 0;  ///< loss per target, the others as sums
  double grad_norm = 0, lr = 0;
  int64_t targets = 0;
  std::vector<int64_t> chosen, taken;   ///< [sparse layers · experts]
  std::vector<int64_t> moved, dropped;  ///< [sparse layers]

  bool operator==(const StepNumbers&) const = default;
};
StepNumbers numbers_of(const StepReport& report);

/// The recording of one rank.
class Trace {
 public:
  void add_step(const StepReport& report) { add_step(numbers_of(report)); }
  void add_step(StepNumbers numbers) { steps_.push_back(std::move(numbers)); }
  /// Copies the pieces. @param step  0: before the first update.
  void add_pieces(int64_t step, const std::vector<PieceView>& pieces);
  /// Records a value of which several ranks hold a copy: their `bytes` must be equal.
  void add_copy(const std::string& name, const void* bytes, size_t num_bytes);

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
  std::map<std::string, std::string> copies_;  // hashes
};

/// The trace of all ranks.
class WholeTrace {
 public:
  /// Reads "rank-0.trace" … of `folder`. @throws IoError, DataError if one is missing or damaged.
  static WholeTrace read(const std::filesystem::path& folder, int num_ranks);
  static std::string file_name(int rank);

  int64_t num_steps() const { return static_cast<int64_t>(steps_.size()); }
  /// Returns the numbers of a step (1-based) as rank 0 reported them.
  const StepNumbers& step(int64_t number) const { return steps_.at(static_cast<size_t>(number) - 1); }

  /// Returns a whole tensor; empty if no rank holds any of it. @param kind  "grad", "master", "exp_avg_sq".
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

}  // namespace athanor
