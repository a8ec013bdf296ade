#include "report/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "plot/run_name.h"
#include "plot/svg_parts.h"
#include "plot/svg_picture.h"
#include "report/evaluation_figures.h"
#include "report/figure_html.h"
#include "report/html.h"
#include "report/page_script.h"
#include "report/page_style.h"
#include "report/page_tables.h"
#include "report/rank_figures.h"
#include "report/step_figures.h"

namespace athanor::inline report {
namespace {

namespace fs = std::filesystem;

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
                     id, escape_xml(title), content);
}

std::string grid(const std::string& figures) {
  return figures.empty() ? "" : "<div class=\"grid\">" + figures + "</div>\n";
}

std::string figures_html(const std::vector<Figure>& figures, const std::string& prefix = "") {
  std::string html;
  for (const Figure& figure : figures) html += figure_html(figure, prefix + figure.id);
  return html;
}

using FiguresOfRun = std::vector<Figure> (*)(const RunRecord&);

// Figures of which each run has its own; with several runs, the title names it. Heat maps of all runs have one scale,
// so that their colours can be compared.
std::string own_figures(const std::vector<RunRecord>& runs, FiguresOfRun figures_of) {
  std::vector<std::vector<Figure>> figures;
  std::map<std::string, Extent> scales;  // by id
  for (const RunRecord& run : runs) {
    for (const Figure& figure : figures.emplace_back(figures_of(run)))
      scales[figure.id].add(figure.heat_map.scale.value_or(figure.heat_map.extent()));
  }
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (Figure& figure : figures[i]) {
      figure.heat_map.scale = scales[figure.id];
      if (runs.size() > 1) figure.title += ": " + runs[i].name;
    }
    html += figures_html(figures[i], fmt::format("run{}-", i));
  }
  return html;
}

std::string axis_choice() {
  std::string html = "<fieldset class=\"choice\"><legend>Horizontal axis</legend>";
  for (const XAxis axis : {XAxis::kTokens, XAxis::kSteps, XAxis::kTime})
    html += fmt::format("<label><input type=\"radio\" name=\"axis\" value=\"{0}\"{1}>{0}</label>", name_of(axis),
                        axis == XAxis::kTokens ? " checked" : "");
  return html + "</fieldset>\n";
}

std::string title_of(const std::vector<RunRecord>& runs) {
  return runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
}

}  // namespace

std::vector<RunRecord> read_runs(const ReportRequest& request) {
  std::vector<std::string> given;
  for (const std::string& run : request.runs) {
    std::error_code ignored;
    const auto is_same = [&](const std::string& other) { return fs::equivalent(run, other, ignored); };
    if (const auto found = std::ranges::find_if(given, is_same); found != given.end())
      log::warn("{} is the same run as {}; it is shown once", run, *found);
    else
      given.push_back(run);
  }
  ATHANOR_CHECK(given.size() <= kMostRuns,
                "{} runs are more than a page can show (at most {}); choose among them, or make several reports",
                given.size(), kMostRuns);
  std::vector<RunRecord> runs;
  std::vector<std::string> names;
  for (const std::string& run : given) names.push_back(runs.emplace_back(read_run_record(run)).name);
  names = without_common_folders(std::move(names));
  for (size_t i = 0; i < runs.size(); ++i) runs[i].name = names[i];
  return runs;
}

std::string version_of_runs(const ReportRequest& request) {
  std::string text;
  for (const std::string& run : request.runs) {
    const fs::path path = run;
    std::error_code ignored;
    for (const char* name : {"", "metrics.jsonl", "events.jsonl", "config.toml", "evals", "attempts"}) {
      const fs::path file = *name == 0 ? path : path / name;
      const auto time = fs::last_write_time(file, ignored);
      if (ignored) continue;
      const uintmax_t size = fs::is_regular_file(file, ignored) ? fs::file_size(file, ignored) : 0;
      text += fmt::format("{} {} {}\n", name, time.time_since_epoch().count(), size);
    }
    for (const auto& attempt : fs::directory_iterator(path / "attempts", ignored)) {
      const auto time = fs::last_write_time(attempt.path(), ignored);  // it changes when a file in it is made
      if (!ignored) text += fmt::format("{} {}\n", attempt.path().string(), time.time_since_epoch().count());
    }
  }
  return hash_hex(text);
}

std::string report_page(const std::vector<RunRecord>& runs, const ReportRequest& request, const std::string& made) {
  std::vector<Figure> figures = figures_of_runs(runs), loss;
  if (!figures.empty() && figures[0].id == "loss") {
    loss.push_back(std::move(figures[0]));
    figures.erase(figures.begin());
  }
  const bool is_live = !request.live_version.empty();
  const std::string title = "Report of " + title_of(runs);
  std::string body = fmt::format("<header><h1>{}</h1>\n{}</header>\n<main>\n", escape_xml(title), axis_choice());
  body += section("runs", "Runs", runs_table(runs));
  body += section("curves", "Loss", grid(figures_html(loss)));
  body += section("compared", "Compared at the same tokens", runs.size() > 1 ? comparison_table(runs) : "");
  body += section("evaluation", "Evaluation", grid(figures_html(evaluation_figures(runs, request.chance))));
  body += section("training", "Training", grid(figures_html(figures)));
  body += section("time-use", "Time", grid(own_figures(runs, time_figures)) + time_table(runs));
  body += section("ranks", "Ranks", grid(own_figures(runs, rank_figures)) + rank_tables(runs));
  body += section("experts", "Experts", grid(own_figures(runs, load_maps)));
  body += section("data", "Data", grid(own_figures(runs, source_figures)));
  body += section("events", "Events", events_tables(runs));
  body += section("configuration", "Configuration", settings_tables(runs));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'; img-src data:{}\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body "
      "data-axis=\"tokens\"{}>\n{}</main>\n"
      "<footer>{}</footer>\n<div id=\"pointer\" role=\"status\" aria-live=\"polite\" "
      "hidden></div>\n<script>\n{}</script>\n</body>\n</html>\n",
      is_live ? "; connect-src 'self'" : "", escape_xml(title), kPageStyle,
      is_live ? fmt::format(" data-live=\"{}\"", escape_xml(request.live_version)) : "", body, escape_xml(made),
      kPageScript + std::string(is_live ? kLiveScript : ""));
}

std::vector<std::pair<std::string, std::string>> report_figures(const std::vector<RunRecord>& runs,
                                                                const ReportRequest& request) {
  std::vector<std::pair<std::string, std::string>> files;
  const auto add = [&](const std::vector<Figure>& figures, const std::string& prefix) {
    for (Figure figure : figures) {
      if (figure.has(XAxis::kTokens)) figure.x_axis = XAxis::kTokens;
      files.emplace_back(prefix + figure.id + ".svg", draw_svg({figure}));
    }
  };
  add(figures_of_runs(runs), "");
  add(evaluation_figures(runs, request.chance), "");
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string prefix = runs.size() == 1 ? "" : fmt::format("run{}-", i);
    for (const FiguresOfRun figures_of : {time_figures, source_figures, rank_figures, load_maps})
      add(figures_of(runs[i]), prefix);
  }
  return files;
}

}  // namespace athanor::inline report
