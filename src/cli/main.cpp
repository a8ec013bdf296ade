// The program athanor. It links no libtorch, so that login nodes answer at once; core.h is the interface to what needs
// tensors.

#include <fcntl.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/build_info.h"
#include "base/error.h"
#include "base/failure.h"
#include "base/fault.h"
#include "base/fault_announcement.h"
#include "base/launched.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "base/process.h"
#include "base/text.h"
#include "board/collector.h"
#include "cli/commands.h"
#include "cli/parse_error.h"
#include "kernels/matmul_path.h"

namespace athanor::inline cli {
namespace {

// Lists the options of all commands for the test of the answers to wrong ones (tests/interop/test_answers.py).

void print_options(const CLI::App& command, const std::string& name) {
  for (const auto* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_group().empty()) continue;  // hidden ones are for programs
    const nlohmann::ordered_json row{{"command", name},
                                     {"option", option->get_name()},
                                     {"argument", option->get_positional()},
                                     {"takes_value", option->get_items_expected_max() > 0},
                                     {"type", option->get_type_name()}};
    fmt::print("{}\n", row.dump());
  }
  for (const auto* inner : command.get_subcommands([](const CLI::App*) { return true; }))
    print_options(*inner, name.empty() ? inner->get_name() : name + " " + inner->get_name());
}

// Prints a JSON object for each option and argument of each command: its command, its name, whether it takes a value,
// and the type that --help names.
void print_option_list(const CLI::App& app) { print_options(app, ""); }

// Checks if the chosen command may run as several processes: as the ranks of one job, or as copies that only read.

constexpr const char* kJobs[] = {"train", "lr-find",    "verify",          "eval", "probe", "generate",
                                 "yeet",  "bench comm", "bench checkpoint"};
constexpr const char* kConfigured[] = {"train", "lr-find", "verify", "config", "bench step", "bench checkpoint"};
// These commands write nothing: copies of them are a nuisance at worst.
constexpr const char* kReaders[] = {"config",           "data info", "data show", "data verify",   "tokenizer encode",
                                    "tokenizer decode", "plot",      "status",    "checkpoint ls", "checkpoint diff"};

bool among(const auto& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string chosen_command(const CLI::App& app) {
  std::string command;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = chosen[0]->get_subcommands()) {
    command += (command.empty() ? "" : " ") + chosen[0]->get_name();
  }
  return command;
}

// True if the chosen subcommand reads a configuration, and announces armed faults itself when that is not refused.
bool reads_configuration(const CLI::App& app) { return among(kConfigured, chosen_command(app)); }

// Checks the chosen subcommand. `train`, `verify` and the benchmarks of jobs must not be copies that cannot find one
// another; commands that only read may be anything; all others must be a single process (base/launched.h).
// @throws ConfigError, before anything is written.
void refuse_several_processes(const CLI::App& app) {
  const std::string command = chosen_command(app);
  if (among(kJobs, command)) return refuse_unseen_launcher();
  if (!among(kReaders, command)) refuse_copies(command);
}

// The text of `athanor --version`.

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string libtorch_text(const BuildInfo& build) {
  return build.libtorch.empty() ? "none" : fmt::format("{} in {}", build.libtorch, build.libtorch_folder);
}

std::string cuda_text(const BuildInfo& build) {
  if (build.libtorch.empty()) return "none";
  return (build.nvcc.empty() ? "no kernels (no nvcc at build time)" : "kernels by nvcc " + build.nvcc) +
         (build.libtorch_cuda.empty() ? "; " + build.why_no_cuda : "; libtorch for CUDA " + build.libtorch_cuda);
}

std::string parquet_text() {
  std::error_code ignored;
  return std::filesystem::exists(own_folder() / "libathanor_parquet.so", ignored) ? "yes" : "no";
}

// Returns "athanor 0.1.0 (COMMIT)" as the first line, and below it what the program was built with and finds here.
// Opens no library, so that it answers at once.
std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("athanor {} ({})\n", build.version, build.commit) + fmt::format("compiler  {}\n", build.compiler) +
         fmt::format("libtorch  {}\n", libtorch_text(build)) + fmt::format("CUDA      {}\n", cuda_text(build)) +
         fmt::format("MPI       {}\n", or_none(build.mpi)) + fmt::format("Parquet   {}\n", parquet_text()) +
         fmt::format("CPU       {} with {}", cpu_model(), kernels::describe_instructions());
}

}  // namespace
}  // namespace athanor::inline cli

namespace {

// Before communication all ranks find the same errors, except on a host that lacks a file. A busy rank may be late.
constexpr std::chrono::seconds kPatience{6};

// CLI11 would only report that a subcommand is required.
void refuse_unknown_subcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> known;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  if (known.empty()) return;
  ATHANOR_CHECK(std::find(known.begin(), known.end(), argv[1]) != known.end(), "unknown subcommand {}{}; there are {}",
                argv[1], athanor::did_you_mean(argv[1], known), athanor::join(known));
  refuse_unknown_subcommand(*app.get_subcommand(argv[1]), argc - 1, argv + 1);
}

// If standard streams are closed (`>&-`), the next files that are opened would take their descriptors and get their
// lines.
void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;  // the lowest free one is taken
  }
}

int run(int argc, char** argv) {
  CLI::App app(
      "Pretrains language models: raw documents → tokens → training → a checkpoint that transformers loads.\n"
      "A first run, step by step:  athanor tokenizer train … → athanor prepare … → athanor train … → athanor generate "
      "…");
  app.set_version_flag("-v,-V,--version", athanor::version_text,
                       "Print the version, and what the program was built with");
  app.require_subcommand(1);
  app.failure_message(
      [words = std::vector<std::string>(argv + 1, argv + argc)](const CLI::App* top, const CLI::Error& error) {
        return athanor::describe_parse_error(*top, error, words);
      });
  athanor::add_tokenizer_command(app);
  athanor::add_prepare_command(app);
  athanor::add_data_command(app);
  athanor::add_config_command(app);
  athanor::add_train_command(app);
  athanor::add_lr_find_command(app);
  athanor::add_launch_command(app);
  athanor::add_yeet_command(app);
  athanor::add_plot_command(app);
  athanor::add_report_command(app);
  athanor::add_status_command(app);
  athanor::add_classify_command(app);
  athanor::add_checkpoint_command(app);
  athanor::add_export_command(app);
  athanor::add_import_command(app);
  athanor::add_eval_command(app);
  athanor::add_generate_command(app);
  athanor::add_smoke_command(app);
  athanor::add_probe_command(app);
  athanor::add_verify_command(app);
  athanor::add_bench_command(app);
  if (argc == 2 && argv[1] == std::string("--list-options")) {
    athanor::print_option_list(app);
    return 0;
  }
  refuse_unknown_subcommand(app, argc, argv);
  app.parse_complete_callback([&app] {
    athanor::refuse_several_processes(app);
    athanor::describe_armed_faults();  // refuses what means nothing
    if (!athanor::reads_configuration(app)) athanor::announce_armed_faults();
  });
  try {
    app.parse(argc, argv);  // each subcommand runs in its callback
  } catch (const CLI::ParseError& error) {
    const bool failed = error.get_exit_code() != 0;
    if (!failed) athanor::announce_armed_faults();  // help or version
    const auto me = athanor::launched();
    if (failed) athanor::let_rank_0_speak(me, kPatience);
    app.exit(error);
    if (failed && me.size > 1) athanor::end_job(me, athanor::exit_code::kInput);
    return failed ? athanor::exit_code::kInput : athanor::exit_code::kComplete;
  } catch (const athanor::ExitCode& code) {
    return code.value;
  }
  return 0;
}

// Results that cannot be written are a failure. A reader that has left, such as `head`, has what it wanted.
void write_out_results() {
  if (std::fflush(stdout) != 0 && errno != EPIPE) athanor::fail_errno("cannot write to", "standard output");
}

}  // namespace

// The one catch for errors outside communication. It prints each error on one line and returns its exit code. If a
// launcher started many processes, all have found the same error, and one of them prints it. Errors of communicating
// ranks are caught while their world is still open (run/in_world.h).
int main(int argc, char** argv) {
  open_standard_streams();
  // A word for the program itself, which no page lists.
  if (argc == 3 && argv[1] == std::string(athanor::board::kCollectorCommand))
    return athanor::board::run_collector(argv[2]);
  try {
    const int exit_code = run(argc, argv);
    if (exit_code == athanor::exit_code::kComplete) write_out_results();
    return exit_code;
  } catch (...) {
    const athanor::Failure failure = athanor::describe_failure(std::current_exception());
    const athanor::Launched me = athanor::launched();
    if (!failure.is_told) athanor::let_rank_0_speak(me, kPatience);
    if (!failure.is_told)
      athanor::log::error("{}", me.rank == 0 ? failure.message : failure_line(failure, me, athanor::host_name(), 0));
    if (me.size > 1) athanor::end_job(me, failure.exit_code);
    return failure.exit_code;
  }
}
