#include "report/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "plot/run_name.h"
#include "plot/svg_parts.h"
#include "report/chart_html.h"
#include "report/chart_svg.h"
#include "report/evaluation_charts.h"
#include "report/html.h"
#include "report/page_script.h"
#include "report/page_style.h"
#include "report/page_tables.h"
#include "report/rank_charts.h"
#include "report/run_charts.h"

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

std::string figures_of(const std::vector<Chart>& charts, const std::string& prefix) {
  std::string html;
  for (const Chart& chart : charts) html += chart_figure(chart, prefix + chart.id);
  return html;
}

// Charts of which each run has its own; with several runs, the title names it.
std::string own_figures(const std::vector<RunRecord>& runs, std::vector<Chart> (*charts_of)(const RunRecord&)) {
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<Chart> charts = charts_of(runs[i]);
    for (Chart& chart : charts)
      if (runs.size() > 1) chart.title += ": " + runs[i].name;
    html += figures_of(charts, fmt::format("run{}-", i));
  }
  return html;
}

// Maps of which each run has its own, with one scale for all runs, so that their colours can be compared.
std::string own_maps(const std::vector<RunRecord>& runs, std::vector<HeatMap> (*maps_of)(const RunRecord&)) {
  std::vector<std::vector<HeatMap>> maps;
  std::map<std::string, std::pair<double, double>> scales;  // by id of the map
  for (const RunRecord& run : runs) {
    maps.push_back(maps_of(run));
    for (const HeatMap& map : maps.back()) {
      const auto [low, high] = map.scale.value_or(map.range());
      auto& scale = scales.try_emplace(map.id, low, high).first->second;
      scale = {std::min(scale.first, low), std::max(scale.second, high)};
    }
  }
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (HeatMap& map : maps[i]) {
      map.scale = scales[map.id];
      if (runs.size() > 1) map.title += ": " + runs[i].name;
      html += heat_map_figure(map, fmt::format("run{}-{}", i, map.id));
    }
  }
  return html;
}

std::string axis_choice() {
  std::string html = "<fieldset class=\"choice\"><legend>Horizontal axis</legend>";
  for (const char* name : {"tokens", "steps", "time"})
    html += fmt::format("<label><input type=\"radio\" name=\"axis\" value=\"{0}\"{1}>{0}</label>", name,
                        std::string_view(name) == "tokens" ? " checked" : "");
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
  std::vector<Chart> charts = charts_of_runs(runs), loss;
  if (!charts.empty() && charts[0].id == "loss") {
    loss.push_back(std::move(charts[0]));
    charts.erase(charts.begin());
  }
  const bool is_live = !request.live_version.empty();
  const std::string title = "Report of " + title_of(runs);
  std::string body = fmt::format("<header><h1>{}</h1>\n{}</header>\n<main>\n", escape_xml(title), axis_choice());
  body += section("runs", "Runs", runs_table(runs));
  body += section("curves", "Loss", grid(figures_of(loss, "")));
  body += section("compared", "Compared at the same tokens", runs.size() > 1 ? comparison_table(runs) : "");
  body += section("evaluation", "Evaluation", grid(figures_of(evaluation_charts(runs, request.chance), "")));
  body += section("training", "Training", grid(figures_of(charts, "")));
  body += section("time-use", "Time", grid(own_figures(runs, time_charts)) + time_table(runs));
  body +=
      section("ranks", "Ranks", grid(own_maps(runs, rank_maps) + own_figures(runs, rank_charts)) + rank_tables(runs));
  body += section("experts", "Experts", grid(own_maps(runs, load_maps)));
  body += section("data", "Data", grid(own_figures(runs, source_charts)));
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
  const auto add = [&](const std::vector<Chart>& charts, const std::string& prefix) {
    for (const Chart& chart : charts) files.emplace_back(prefix + chart.id + ".svg", chart_file(chart));
  };
  add(charts_of_runs(runs), "");
  add(evaluation_charts(runs, request.chance), "");
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string prefix = runs.size() == 1 ? "" : fmt::format("run{}-", i);
    add(time_charts(runs[i]), prefix);
    add(source_charts(runs[i]), prefix);
    add(rank_charts(runs[i]), prefix);
    for (const auto maps_of : {rank_maps, load_maps})
      for (const HeatMap& map : maps_of(runs[i])) files.emplace_back(prefix + map.id + ".svg", heat_map_file(map));
  }
  return files;
}

}  // namespace athanor::inline report
