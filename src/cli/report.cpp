// athanor report RUN... --out report.html: one page that shows runs, and compares them.

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/output_check.h"
#include "report/page.h"
#include "tasks/task_list.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  ReportRequest request;
  std::string out, svg;
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
                "--out {} is there and is no page of HTML; name another file, or remove it", path);
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

void report(ReportArguments arguments) {
  ATHANOR_CHECK(
      !arguments.out.empty() || !arguments.svg.empty(),
      "report: name the page to write with --out FILE.html, or a folder for single figures with --svg FOLDER");
  if (!arguments.out.empty()) check_page_file(arguments.out);
  if (!arguments.svg.empty()) check_figures_folder(arguments.svg);
  arguments.request.chance = tasks::shipped_chances();
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
  command->callback([arguments] { report(*arguments); });
}

}  // namespace athanor
