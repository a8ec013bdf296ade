#pragma once
// Timing in turns: ours, its limit, ours, its limit, … so that what else the machine does meets both alike.

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "cli/core.h"

namespace athanor::bench {

/// Cuts a call into laps: everything since the call began or since the last lap.
class Laps {
 public:
  explicit Laps(size_t num_parts) : seconds_(num_parts, 0.0), last_s_(now_s()) {}
  /// Ends part `part`; a part that ends more than once is summed.
  void end(size_t part);
  /// What the call has measured itself.
  void add(size_t part, double seconds) { seconds_.at(part) += seconds; }
  /// Leaves out what was done since then: preparation.
  void skip() { last_s_ = now_s(); }
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  static double now_s();

  std::vector<double> seconds_;
  double last_s_;
};

/// A part of a call and how much it does, in the unit of its limit (FLOP, bytes); 0 where nothing bounds it.
struct Part {
  std::string name;
  double work = 0;
};

/// Something to be timed. `call` ends each of its parts.
struct Subject {
  std::string name;
  std::vector<Part> parts;
  std::function<void(Laps&)> call;

  double work() const;
};

/// Of a single part.
Subject simple_subject(std::string name, double work, std::function<void()> call);

/// Seconds of one call in each round; a round is the mean of as many calls as fill some 20 ms.
struct Samples {
  std::vector<double> total;
  std::vector<std::vector<double>> parts;  ///< [part][round]
};

/// Warms each subject up, then times all in turns: as often as `given` says, or for each line of standard input where
/// it is paced.
std::vector<Samples> measure_in_turns(const std::vector<Subject>& subjects, const BenchArguments& given);

double median(std::vector<double> values);

/// The yardsticks of multiplications: the library's own product of square matrices, 1024 and 2048 wide, and as the last
/// the product of a few experts as training makes it.
std::vector<Subject> gemm_yardsticks(at::ScalarType dtype);
constexpr size_t kGemmYardsticks = 3;

/// The yardsticks of memory, of which the better is the limit; work counts what is read and written. All threads copy
/// `bytes` from one place to another, and change them in place (which spares the reading of what will be overwritten).
std::vector<Subject> copy_yardsticks(int64_t bytes);

/// All threads read `bytes`.
Subject read_yardstick(int64_t bytes);

/// Work per second of the median round; of several subjects the best.
double best_rate(const std::vector<Subject>& subjects, const std::vector<Samples>& samples, size_t first, size_t count);

/// Sets libtorch's threads as `athanor train` does, and refuses what makes no sense.
void set_up(const BenchArguments& given);

/// The type of that name, or both where there is none.
std::vector<at::ScalarType> dtypes_of(const std::string& name);

}  // namespace athanor::bench
