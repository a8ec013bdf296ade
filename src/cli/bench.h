#pragma once
// The subcommands of `athanor bench` with their options. Each benchmark is a file here, with one function that adds its
// subcommand, and a file in bench/, which verifies first and then measures.

namespace CLI {
class App;
}

namespace athanor {
struct BenchArguments;
}  // namespace athanor

namespace athanor::inline cli {

/// Adds --rounds, --threads, --json and --paced, which every benchmark except `data` and `checkpoint` has. `arguments`
/// (bench/arguments.h) must outlive `command`.
void add_bench_options(CLI::App& command, BenchArguments& arguments);

void add_bench_checkpoint_command(CLI::App& bench);
void add_bench_comm_command(CLI::App& bench);
void add_bench_data_command(CLI::App& bench);
void add_bench_gemm_command(CLI::App& bench);
void add_bench_moe_command(CLI::App& bench);
void add_bench_optimizer_command(CLI::App& bench);
void add_bench_overhead_command(CLI::App& bench);
void add_bench_pipeline_command(CLI::App& bench);
void add_bench_step_command(CLI::App& bench);

}  // namespace athanor::inline cli
