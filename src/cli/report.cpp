// athanor report RUN... --out report.html, or --live: one page that shows runs, and compares them.

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/output_check.h"
#include "cli/page_server.h"
#include "report/page.h"
#include "tasks/task_list.h"

namespace athanor::inline cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  ReportRequest request;
  std::string out, svg;
  bool live = false;
  std::string address;
  std::optional<int> port;
};

// A page that is there may be replaced, and nothing else.
void check_page_file(const std::string& path) {
  ATHANOR_CHECK(path.ends_with(".html"), "--out {}: the report is a page of HTML; give it a name that ends with .html",
                path);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  std::string start(9, ' ');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  ATHANOR_CHECK(start == "<!DOCTYPE" || fs::is_empty(path, ignored),
                "--out {} is there and is no page of HTML; name another file, or move it away", path);
}

// A folder may have pictures, which are replaced, and nothing else.
void check_figures_folder(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return;
  for (const auto& entry : fs::directory_iterator(folder))
    ATHANOR_CHECK(entry.path().extension() == ".svg", "--svg {}: it has {}, which is no picture; name another folder",
                  folder, entry.path().filename().string());
}

std::string made_by() {
  return fmt::format("Made by athanor {} ({}) on {:%Y-%m-%d %H:%M} UTC", build_info().version, build_info().commit,
                     fmt::gmtime(std::time(nullptr)));
}

// A program that was copied without its task files makes reports, too.
std::map<std::string, double> chances() {
  try {
    return tasks::shipped_chances();
  } catch (const ConfigError& error) {
    log::warn("the scores of guessing are not shown: {}", error.what());
    return {};
  }
}

// A run that has no step yet is waited for, and any other mistake is told before the server begins.
void check_runs(const ReportRequest& request) {
  for (const std::string& run : request.runs) {
    std::error_code ignored;
    const bool begins = fs::is_directory(run, ignored) && fs::exists(fs::path(run) / "config.toml", ignored);
    if (!begins) read_run_record(run);
  }
}

void serve(ReportArguments arguments) {
  ATHANOR_CHECK(arguments.out.empty() && arguments.svg.empty(),
                "report: --live writes no file; leave out --out and --svg");
  check_runs(arguments.request);
  const SignalGuard signals("ending the report; the runs continue");
  ReportRequest& request = arguments.request;
  PageServer server(arguments.address.empty() ? "127.0.0.1" : arguments.address, arguments.port.value_or(0),
                    {.version = [&] { return version_of_runs(request); },
                     .page =
                         [&] {
                           // Before the files are read: what they get meanwhile is another version.
                           request.live_version = version_of_runs(request);
                           return report_page(read_runs(request), request, made_by());
                         }});
  if (!server.is_local())
    log::warn("{}: whoever reaches this address can read the runs' configuration and results", server.url());
  fmt::print("{}\n", server.url());
  if (std::fflush(stdout) != 0) fail_errno("cannot write to", "standard output");
  log::info("Open this address in a browser. Ctrl-C ends the report, and the runs do not notice");
  server.serve([&] { return signals.stop_signal().has_value(); });
}

void report(ReportArguments arguments) {
  arguments.request.chance = chances();
  if (arguments.live) return serve(std::move(arguments));
  ATHANOR_CHECK(arguments.address.empty() && !arguments.port,
                "report: --address and --port are where --live listens; add --live, or leave them out");
  ATHANOR_CHECK(!arguments.out.empty() || !arguments.svg.empty(),
                "report: name the page to write with --out FILE.html, a folder for single figures with --svg FOLDER, "
                "or show it while the run trains with --live");
  if (!arguments.out.empty()) check_page_file(arguments.out);
  if (!arguments.svg.empty()) check_figures_folder(arguments.svg);
  const std::vector<RunRecord> runs = read_runs(arguments.request);
  if (!arguments.out.empty()) {
    write_file_atomically(arguments.out, report_page(runs, arguments.request, made_by()));
    log::info("{} written", arguments.out);
  }
  if (arguments.svg.empty()) return;
  with_io_errors([&] { return fs::create_directories(arguments.svg); });
  const auto figures = report_figures(runs, arguments.request);
  for (const auto& [name, svg] : figures) write_file_atomically(fs::path(arguments.svg) / name, svg);
  log::info("{} figures written to {}", figures.size(), arguments.svg);
}

}  // namespace

void add_report_command(CLI::App& app) {
  const auto arguments = std::make_shared<ReportArguments>();
  auto* command =
      app.add_subcommand("report", "Show runs on one page: curves, scores, time, experts, events, configuration");
  command
      ->add_option("RUN", arguments->request.runs,
                   "Run folders, also of runs that are training; or files such as RUN/metrics-003.jsonl")
      ->required();
  command
      ->add_option("--out", arguments->out,
                   "The page to write (.html). It needs no other file and no network; several runs are compared at the "
                   "same tokens")
      ->check(new_file());
  command->add_option("--svg", arguments->svg, "A folder to write each figure to, as an SVG")->check(new_folder());
  command->add_flag(
      "--live", arguments->live,
      "Serve the page to a browser of this machine until Ctrl-C, and renew it while the runs train. Nothing "
      "can be changed through it");
  command->add_option("--address", arguments->address, "The address at which --live listens; by default 127.0.0.1");
  command
      ->add_option("--port", arguments->port,
                   "The port at which --live listens; 0, the default, takes one that is free")
      ->check(CLI::Range(0, 65535));
  command->callback([arguments] { report(*arguments); });
}

}  // namespace athanor::inline cli
