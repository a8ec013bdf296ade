#pragma once
// Shared parts of the benchmarks: repeated measurements, their table for people and their JSON for scripts.
//
// Each benchmark is a file with one function that adds its subcommand; it verifies first, then measures.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace athanor {

struct BenchArguments;

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

/// Adds --rounds, --threads and --json, which every benchmark of the core has.
void add_bench_options(CLI::App& command, BenchArguments& arguments);

void add_bench_comm_command(CLI::App& bench);
void add_bench_data_command(CLI::App& bench);
void add_bench_gemm_command(CLI::App& bench);
void add_bench_moe_command(CLI::App& bench);
void add_bench_optimizer_command(CLI::App& bench);
void add_bench_overhead_command(CLI::App& bench);
void add_bench_pipeline_command(CLI::App& bench);
void add_bench_step_command(CLI::App& bench);

}  // namespace athanor
