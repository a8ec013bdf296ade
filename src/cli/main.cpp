// athanor: the program. It links no libtorch, so that login nodes answer at once; see core.h for what needs tensors.

#include <fcntl.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>

#include "base/error.h"
#include "base/failure.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/copies.h"
#include "cli/exit_code.h"
#include "cli/version.h"

namespace {

// Before communication all ranks meet the same errors, but for a host that lacks a file; a busy one may be late.
constexpr std::chrono::seconds kPatience{6};

// CLI11 would only say that a subcommand is required.
void refuse_unknown_subcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> known;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  ATHANOR_CHECK(std::find(known.begin(), known.end(), argv[1]) != known.end(), "unknown subcommand {}{}; there are {}",
                argv[1], athanor::did_you_mean(argv[1], known), athanor::join(known));
}

// Whoever armed faults, or inherits an environment in which somebody did, hears of it.
void announce_armed_faults() {
  const std::string armed = athanor::describe_armed_faults();
  if (!armed.empty() && athanor::launched().rank == 0) fmt::print(stderr, "athanor: {}\n", armed);
}

// Where standard streams are closed (`>&-`), the next file that is opened would take their place, and get their lines.
void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;  // the lowest free one is taken
  }
}

int run(int argc, char** argv) {
  announce_armed_faults();
  CLI::App app(
      "Pretrains language models: raw documents → tokens → training → a checkpoint that transformers loads.\n"
      "A first run, step by step:  athanor tokenizer train … → athanor prepare … → athanor train … → athanor generate "
      "…");
  app.set_version_flag("--version", athanor::version_text, "Print the version, and what the program was built with");
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* top, const CLI::Error& error) {
    std::string command = "athanor";
    for (auto chosen = top->get_subcommands(); !chosen.empty(); chosen = chosen[0]->get_subcommands()) {
      command += " " + chosen[0]->get_name();
    }
    return fmt::format("{0}: {1}; see {0} --help\n", command, error.what());
  });
  athanor::add_tokenizer_command(app);
  athanor::add_prepare_command(app);
  athanor::add_data_command(app);
  athanor::add_config_command(app);
  athanor::add_train_command(app);
  athanor::add_export_command(app);
  athanor::add_import_command(app);
  athanor::add_generate_command(app);
  athanor::add_smoke_command(app);
  athanor::add_verify_command(app);
  athanor::add_bench_command(app);
  refuse_unknown_subcommand(app, argc, argv);
  app.parse_complete_callback([&app] { athanor::refuse_what_started_us(app); });
  try {
    app.parse(argc, argv);  // each subcommand runs in its callback
  } catch (const CLI::ParseError& error) {
    const bool failed = error.get_exit_code() != 0;
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

}  // namespace

// The one catch of what communication has no part in: what went wrong on one line (a line each, where there are
// several), and its exit code. Where a launcher has started many of us, all have met the same, so that one speaks; what
// is thrown among communicating ranks is caught with their world still open (core/in_world.h).
int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return run(argc, argv);
  } catch (...) {
    const athanor::Failure failure = athanor::describe_failure(std::current_exception());
    const athanor::Launched me = athanor::launched();
    athanor::let_rank_0_speak(me, kPatience);
    athanor::log::error("{}", me.rank == 0 ? failure.message : failure_line(failure, me, athanor::host_name(), 0));
    if (me.size > 1) athanor::end_job(me, failure.exit_code);
    return failure.exit_code;
  }
}
