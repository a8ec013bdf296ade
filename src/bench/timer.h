#pragma once
// Times subjects alternately: ours, its limit, ours, its limit, … so that other load on the machine affects both
// equally.

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/arguments.h"

namespace athanor::bench {

/// Divides a call into laps; a lap is the time since the call began or since the last lap. On a device each lap ends
/// when the device has done everything that was queued.
class Laps {
 public:
  explicit Laps(size_t num_parts, at::Device device = at::kCPU)
      : seconds_(num_parts, 0.0), device_(device), last_s_(now_s()) {}
  /// Ends part `part`; times of a part that ends more than once are summed.
  void end(size_t part);
  /// Adds a time that the call has measured itself.
  void add(size_t part, double seconds) { seconds_.at(part) += seconds; }
  /// Leaves out the time since the last lap: preparation.
  void skip() { last_s_ = now_s(); }
  /// The time at which the device has done everything.
  double now_s() const;
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  std::vector<double> seconds_;
  at::Device device_;
  double last_s_;
};

/// A part of a call and its amount of work, in the unit of its limit (FLOP, bytes); 0 if nothing bounds it.
struct Part {
  std::string name;
  double work = 0;
};

/// A subject to be timed. `call` ends each of its parts.
struct Subject {
  std::string name;
  std::vector<Part> parts;
  std::function<void(Laps&)> call;

  double work() const;
};

/// Returns a subject with a single part.
Subject simple_subject(std::string name, double work, std::function<void()> call);

/// Seconds of one call, for each round: the mean of as many calls as take about 20 ms.
struct Samples {
  std::vector<double> total;
  std::vector<std::vector<double>> parts;  ///< [part][round]
};

/// Warms each subject up, then times them alternately: as many rounds as `given` asks for, or one for each line of
/// standard input if it is paced.
std::vector<Samples> measure_in_turns(const std::vector<Subject>& subjects, const BenchArguments& given,
                                      at::Device device = at::kCPU);

double median(std::vector<double> values);

/// Returns the references for matrix products: the library's own product of square matrices, 1024 and 2048 wide, and,
/// as the last, the product of a few experts as training computes it.
std::vector<Subject> gemm_yardsticks(at::ScalarType dtype);
constexpr size_t kGemmYardsticks = 3;

/// Returns the references for memory, of which the better is the limit; work counts the bytes read and written. All
/// threads copy `bytes` from one place to another, and change them in place (which avoids reading what will be
/// overwritten). On a device libtorch does it.
std::vector<Subject> copy_yardsticks(int64_t bytes, at::Device device = at::kCPU);

/// Returns a reference in which all threads read `bytes`; on a device libtorch adds them up.
Subject read_yardstick(int64_t bytes, at::Device device = at::kCPU);

/// Returns the work per second of the median round; of several subjects the best.
double best_rate(const std::vector<Subject>& subjects, const std::vector<Samples>& samples, size_t first, size_t count);

/// Sets libtorch's threads as `athanor train` does. @throws ConfigError for arguments that make no sense.
void set_up(const BenchArguments& given);

/// Returns the type of that name, or both types if the name is empty. @throws ConfigError for any other name.
std::vector<at::ScalarType> dtypes_of(const std::string& name);

}  // namespace athanor::bench
