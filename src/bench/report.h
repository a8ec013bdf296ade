#pragma once
// The results of a benchmark, as a table for people and as a list of JSON objects for scripts.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/timer.h"

namespace athanor::bench {

/// The limit that a rate is compared with, in work per second.
struct Limit {
  std::string what;  ///< its name, such as "bfloat16 GEMM peak"
  std::string unit;  ///< unit of the work: "FLOP" or "bytes"
  double rate = 0;   ///< per second
};

/// Returns the best rate of the references that gemm_yardsticks made, which are subjects[first] and the following. If
/// ATHANOR_MATMUL names a path of tiles, only the last one counts, which runs on that path: the library may use
/// instructions that the path lacks.
Limit gemm_limit(at::ScalarType dtype, const std::vector<Subject>& subjects, const std::vector<Samples>& samples,
                 size_t first);

/// A line of the report.
struct Result {
  std::string name;
  nlohmann::json shape;         ///< an object whose fields go into the JSON with the figures
  std::vector<double> seconds;  ///< seconds of one call, for each round
  double work = 0;              ///< work of one call, in Limit::unit; 0: the line reports only the time
  Limit limit;
  std::string note = {};

  double median_s() const { return median(seconds); }
  double rate() const { return work / median_s(); }
  double limit_share() const { return limit.rate > 0 ? rate() / limit.rate : 0; }
};

class Report {
 public:
  /// Prints the head of the table, to which `add` adds lines.
  void begin(const std::string& title);
  void add(Result result);
  /// Adds one line for the whole subject, and if it has several parts one for each of them.
  void add(const Subject& subject, const Samples& samples, const nlohmann::json& shape, const Limit& limit,
           const std::string& note = {});
  /// Prints a line that is not part of the results.
  void say(const std::string& line) const;

  /// Writes a list of objects: name, the shape's fields, median_s, min_s, max_s, rounds, work, unit, rate, limit,
  /// limit_is, limit_share (null if nothing bounds it). Writes nothing if `file` is empty.
  void write(const std::string& file) const;
  const std::vector<Result>& results() const { return results_; }

 private:
  std::vector<Result> results_;
};

}  // namespace athanor::bench
