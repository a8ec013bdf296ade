// athanor plot RUN... draws the curves of runs, or with --evals their scores on tasks: on the terminal, or as an SVG.

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "cli/terminal_style.h"
#include "plot/evals_folder.h"
#include "plot/run_figures.h"
#include "plot/score_figures.h"
#include "plot/svg_picture.h"
#include "plot/terminal_picture.h"
#include "tasks/task_list.h"

namespace athanor::inline cli {
namespace {

struct PlotArguments {
  PlotRequest request;
  std::vector<std::string> lines;
  std::string out;
  bool evals = false;
  std::vector<std::string> tasks;             // with --evals
  std::map<std::string, size_t> times_given;  // how often each option was given whose meaning --evals changes
};

// "NAME=VALUE"; the name may contain "=".
Level parse_level(const std::string& text) {
  const size_t equals_sign = text.rfind('=');
  double value = NAN;
  ATHANOR_CHECK(equals_sign != text.npos && equals_sign > 0 &&
                    CLI::detail::lexical_cast(text.substr(equals_sign + 1), value) && std::isfinite(value),
                "--line {}: expected NAME=VALUE, such as \"unigram entropy=6.556\"", text);
  return {text.substr(0, equals_sign), value};
}

void check_evals_options(PlotArguments& arguments) {
  ATHANOR_CHECK(arguments.times_given["--smooth"] == 0, "--smooth is for metrics, and not for --evals; leave it out");
  ATHANOR_CHECK(arguments.times_given["--line"] == 0, "--line is for metrics, and not for --evals; leave it out");
  ATHANOR_CHECK(arguments.times_given["--y"] <= 1, "with --evals, --y names one metric, such as acc; give it once");
  ATHANOR_CHECK(arguments.request.x != XAxis::kTime, "--x time is not known of --evals; choose tokens or steps");
}

// The scores on tasks over the checkpoints of runs, from the results that are there.
void plot_evals(PlotArguments& arguments) {
  check_evals_options(arguments);
  HistoryRequest request{.metric = arguments.times_given["--y"] > 0 ? arguments.request.fields[0] : "",
                         .tasks = arguments.tasks,
                         .chance = tasks::shipped_chances()};
  const ScoreHistory history = make_score_history(read_evaluations(arguments.request.runs), request);
  if (arguments.out.empty()) {
    fmt::print("{}", score_table(history, terminal_width()));
    return;
  }
  ScoreAxis axis = ScoreAxis::kTokensIfKnown;
  if (arguments.times_given["--x"] > 0)
    axis = arguments.request.x == XAxis::kTokens ? ScoreAxis::kTokens : ScoreAxis::kSteps;
  write_file_atomically(arguments.out, draw_scores(history, axis));
}

void plot(PlotArguments arguments) {
  for (const auto& line : arguments.lines) arguments.request.levels.push_back(parse_level(line));
  if (!arguments.out.empty()) check_picture_file("--out", arguments.out);
  if (arguments.evals) return plot_evals(arguments);
  ATHANOR_CHECK(arguments.tasks.empty(), "--tasks chooses among the results of evaluations; add --evals");
  const auto figures = make_run_figures(arguments.request);
  if (!arguments.out.empty()) return write_file_atomically(arguments.out, draw_svg(figures));
  const auto style = style_of_terminal(figures[0].curves.size());
  for (size_t i = 0; i < figures.size(); ++i)
    fmt::print("{}{}", i == 0 ? "" : "\n", draw_on_terminal(figures[i], style));
}

}  // namespace

void add_plot_command(CLI::App& app) {
  const auto arguments = std::make_shared<PlotArguments>();
  auto* command = app.add_subcommand("plot", "Draw training and validation loss of runs, or other metrics");
  command
      ->add_option("RUN", arguments->request.runs,
                   "Run folders, also of runs that are training; or files such as RUN/metrics-003.jsonl")
      ->required();
  command
      ->add_option("--y", arguments->request.fields,
                   "A field of metrics.jsonl (docs/metrics.md); may be repeated, for one picture each. A member of a "
                   "field or an item of a list is named with a dot: dead_experts.0. The picture of loss has "
                   "validation_loss as dots")
      ->allow_extra_args(false)
      ->capture_default_str();
  const std::map<std::string, XAxis> axes = {
      {"steps", XAxis::kSteps}, {"tokens", XAxis::kTokens}, {"time", XAxis::kTime}};
  command
      ->add_option_function<std::string>(
          "--x", [arguments, axes](const std::string& name) { arguments->request.x = axes.at(name); },
          "steps, tokens, or time: how long the run worked, without the time between its attempts (default: steps; "
          "with --evals: tokens, if they are known)")
      ->check(CLI::IsMember({"steps", "tokens", "time"}));
  command
      ->add_option("--smooth", arguments->request.window,
                   "Draw each point as the mean over this many steps around it; 1: no smoothing. Without this option, "
                   "one step in 50 from 200 steps on")
      ->check(CLI::Range(1, 1'000'000'000))
      ->transform(without_sign());
  command
      ->add_option("--line", arguments->lines,
                   "NAME=VALUE: a horizontal line in the first picture, such as \"unigram entropy=6.556\"; may be "
                   "repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--out", arguments->out,
                   "Write an SVG to this file. Without it, the picture is drawn on the terminal with braille "
                   "characters, and in plain characters elsewhere")
      ->check(new_file());
  command->add_flag("--evals", arguments->evals,
                    "Show the scores on tasks over the checkpoints, from the results in RUN/evals: a table on the "
                    "terminal, or with --out a picture for each task. RUN may also be a folder or a file of results; "
                    "--y is a metric, such as acc");
  command
      ->add_option("--tasks", arguments->tasks,
                   "Tasks and groups that --evals shows, separated by commas; all without this option; may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->callback([arguments, command] {
    for (const char* name : {"--smooth", "--line", "--y", "--x"})
      arguments->times_given[name] = command->get_option(name)->count();
    plot(*arguments);
  });
}

}  // namespace athanor::inline cli
