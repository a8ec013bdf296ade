// athanor status RUN shows what the ranks of a run are doing, and which of them the others wait for. It reads what the
// collectors of the nodes tell (board/run_status.h), and nothing of the run notices.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/wall_clock.h"
#include "board/run_status.h"
#include "cli/commands.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds kWatchInterval{2};

struct StatusArguments {
  std::string run;
  bool watch = false, json = false;
};

board::RunStatus read_status(const std::string& run) {
  ATHANOR_CHECK(fs::is_directory(run), "{} is no folder; give the run's folder, which train.run_dir names", run);
  const auto reports = board::collect_reports(run);
  const auto end = board::end_of_run(run);
  const bool is_run = fs::exists(fs::path(run) / "config.toml") || fs::exists(fs::path(run) / "events.jsonl");
  ATHANOR_CHECK(
      is_run || !reports.empty(),
      "{} is no run folder: it has neither config.toml nor events.jsonl; name the folder of a run (train.run_dir)",
      run);
  ATHANOR_CHECK(
      end || !reports.empty(),
      "{} has no board, and its history has no end of its last attempt: the run was started with "
      "ATHANOR_BOARD=off or by a version without boards, its nodes cannot keep one (see RUN/log), or it began "
      "a moment ago",
      run);
  return board::status_of(reports, end, unix_time_s());
}

void show_status(const StatusArguments& arguments) {
  const bool redraws = arguments.watch && !arguments.json && ::isatty(STDOUT_FILENO) == 1;
  while (true) {
    const board::RunStatus status = read_status(arguments.run);
    if (redraws) fmt::print("\033[H\033[2J");
    if (arguments.json)
      fmt::print("{}\n", board::status_json(arguments.run, status).dump());
    else
      fmt::print("{}", board::status_text(arguments.run, status));
    if (!arguments.watch || status.has_ended()) return;
    if (!redraws && !arguments.json) fmt::print("\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(kWatchInterval);
  }
}

}  // namespace

void add_status_command(CLI::App& app) {
  const auto arguments = std::make_shared<StatusArguments>();
  auto* command =
      app.add_subcommand("status", "Show what the ranks of a run are doing, and which of them the others wait for");
  command->add_option("RUN", arguments->run, "The run's folder")->required();
  command->add_flag("--watch", arguments->watch, "Show it again every 2 seconds, until the run has ended");
  command->add_flag("--json", arguments->json, "Print a JSON object; with --watch, one on each line");
  command->footer(
      "On a node of the run it shows the present moment of that node. Other nodes are shown as they were up to 5 s "
      "ago\n"
      "(10 s in jobs of a thousand nodes), from RUN/board. See docs/board.md.");
  command->callback([arguments] { show_status(*arguments); });
}

}  // namespace athanor
