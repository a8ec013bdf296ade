#pragma once
// Repeated measurements, their table for people and their JSON for scripts.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace athanor {

/// Returns the seconds on a monotonic clock.
double now_s();
/// Returns the processor time of this thread in seconds.
double thread_s();

/// One quantity measured several times, in `unit` (more is better).
struct BenchRow {
  std::string name, unit;
  std::vector<double> values;
  std::string note = {};

  double median() const;
  double least() const;
  double most() const;
};

/// Prints a line for each row: median, minimum and maximum.
void print_bench_rows(const std::vector<BenchRow>& rows);

/// Returns {"name": {"unit", "median", "min", "max", "values"}, ...}.
nlohmann::json bench_rows_json(const std::vector<BenchRow>& rows);

/// Measures the rate at which one thread copies from memory to memory, in MB/s; a byte that is read and written counts
/// once.
BenchRow measure_memory_copy(int rounds);

}  // namespace athanor
