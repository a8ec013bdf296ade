#include "report/page_tables.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.h"
#include "report/comparison.h"
#include "report/figure_html.h"
#include "report/html.h"
#include "report/rank_figures.h"
#include "report/step_figures.h"

namespace athanor::inline report {
namespace {

constexpr size_t kMostEvents = 200;

std::string cell_number(double value, const char* unit = "") {
  return std::isfinite(value) ? fmt::format("{:.4g}{}", value, unit) : "";
}

std::string whole_number(double value) { return std::isfinite(value) ? format_thousands(value) : ""; }

double last_finite(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double value) { return std::isfinite(value); });
  return found == values.rend() ? NAN : *found;
}

int64_t count_of(const RunRecord& run, std::initializer_list<const char*> kinds) {
  return std::ranges::count_if(
      run.events, [&](const RunEvent& event) { return std::ranges::find(kinds, event.kind) != kinds.end(); });
}

std::string ending_of(const RunRecord& run) {
  if (run.events.empty()) return "";
  if (run.is_running) return "no end recorded: it is running, or was killed";
  return run.events.back().text;
}

std::string ranks_of(const RunRecord& run) {
  const auto begun =
      std::find_if(run.events.rbegin(), run.events.rend(), [](const RunEvent& event) { return event.ranks > 0; });
  return begun == run.events.rend() ? "" : std::to_string(begun->ranks);
}

std::string clock_text(double time) {
  if (time <= 0 || time > 4e9) return "";
  const auto seconds = static_cast<std::time_t>(time);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(seconds));
}

std::string loss_text(const MeanLoss& loss) { return fmt::format("{:.4f} ± {:.4f}", loss.value, loss.error); }

}  // namespace

std::string runs_table(const std::vector<RunRecord>& runs) {
  HtmlTable table{"",
                  {{"run", "model", "ranks", "step", "tokens", "last loss", "last validation loss", "last tokens/s",
                    "last MFU", "time of all steps", "attempts", "steps skipped", "rolled back", "end"}},
                  {}};
  for (const RunRecord& run : runs) {
    const StepRecord& steps = run.steps;
    table.rows.push_back(
        {run.name, setting(run.settings, "model.family"), ranks_of(run), place_text(XAxis::kSteps, steps.steps.back()),
         place_text(XAxis::kTokens, steps.tokens.back()), cell_number(last_finite(steps.field("loss"))),
         cell_number(last_finite(steps.field("validation_loss"))), whole_number(last_finite(steps.field("tps"))),
         cell_number(100 * last_finite(steps.field("mfu")), "%"), place_text(XAxis::kTime, steps.seconds.back()),
         cell_number(last_finite(steps.field("attempt"))), std::to_string(count_of(run, {"skip"})),
         std::to_string(count_of(run, {"roll_back", "went_back"})), ending_of(run)});
  }
  return html_table(table);
}

std::string comparison_table(const std::vector<RunRecord>& runs) {
  const auto matched = match_losses(runs);
  if (matched.empty()) return "";
  HtmlTable table{"Training loss in nats a token, with its standard error; Δ is the difference from the first run",
                  {{"tokens"}},
                  {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    table.rows[0].push_back(runs[i].name);
    if (i > 0) table.rows[0].emplace_back("Δ");
    if (i > 0) table.rows[0].emplace_back("");
  }
  HtmlTable held_out{"Validation loss in nats a token: the last one up to there", {{"tokens"}}, {}};
  for (const RunRecord& run : runs) held_out.rows[0].push_back(run.name);
  bool has_validation = false;
  for (const MatchedLosses& at : matched) {
    std::vector<std::string> row = {place_text(XAxis::kTokens, at.tokens)}, validation = row;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto& loss = at.runs[i];
      row.push_back(loss ? loss_text(*loss) : "");
      validation.push_back(at.validation[i] ? fmt::format("{:.4f}", *at.validation[i]) : "");
      has_validation = has_validation || at.validation[i];
      if (i == 0) continue;
      const bool is_known = loss && at.runs[0];
      const bool differs = is_known && is_difference(*loss, *at.runs[0]);
      if (is_known && !differs) table.pale.emplace_back(table.rows.size(), row.size());
      row.push_back(is_known ? fmt::format("{:+.4f}", loss->value - at.runs[0]->value) : "");
      row.emplace_back(!is_known ? "" : differs ? "" : "noise");
    }
    table.rows.push_back(row);
    held_out.rows.push_back(validation);
  }
  const std::string note = fmt::format(
      "<p class=\"note\">Each loss is the mean over the last twentieth of the common tokens before the point. A "
      "difference "
      "counts as noise if it is below {:g} nats, by which equal runs differ (AuroraGPT), or below two standard "
      "errors.</p>\n",
      kLossNoise);
  return html_table(table) + note + (has_validation ? html_table(held_out) : "");
}

std::string time_table(const std::vector<RunRecord>& runs) {
  HtmlTable table{"Time of the first rank", {{"run"}}, {}};
  for (const RunRecord& run : runs) {
    const auto shares = time_shares(run);
    if (shares.empty()) continue;
    double sum = 0;
    for (const TimeShare& share : shares) sum += share.seconds;
    std::vector<std::string> row = {run.name};
    for (const TimeShare& share : shares) {
      if (table.rows.size() == 1) table.rows[0].push_back(share.name);
      row.push_back(
          fmt::format("{} ({:.1f}%)", format_duration(share.seconds), sum > 0 ? 100 * share.seconds / sum : 0));
    }
    table.rows.push_back(row);
  }
  return table.rows.size() > 1 ? html_table(table) : "";
}

std::string rank_tables(const std::vector<RunRecord>& runs) {
  std::string html;
  for (const RunRecord& run : runs) {
    HtmlTable table{
        "Milliseconds a step, by rank" + (runs.size() > 1 ? ": " + run.name : std::string()), rank_rows(run), {}};
    if (!table.rows.empty()) html += html_table(table);
  }
  if (!html.empty())
    html +=
        "<p class=\"note\">A slow rank computes longest, and the others wait for it. The times are those up to the "
        "last "
        "20th step of each attempt.</p>\n";
  return html;
}

std::string events_tables(const std::vector<RunRecord>& runs) {
  std::string html;
  for (const RunRecord& run : runs) {
    if (run.events.empty()) continue;
    HtmlTable table{runs.size() > 1 ? run.name : "", {{"time (UTC)", "attempt", "step", "event", ""}}, {}};
    // Saves are many; what is left out first are those in the middle.
    size_t left_out = 0;
    for (const RunEvent& event : run.events) {
      const bool is_save = event.kind == "save";
      if (table.rows.size() > kMostEvents || (is_save && run.events.size() > kMostEvents)) {
        ++left_out;
        continue;
      }
      table.rows.push_back({clock_text(event.time), event.attempt > 0 ? std::to_string(event.attempt) : "",
                            place_text(XAxis::kSteps, static_cast<double>(event.step)), event.kind, event.text});
    }
    html += html_table(table);
    if (left_out > 0)
      html += fmt::format("<p class=\"note\">{} events more are in events.jsonl.</p>\n",
                          format_thousands(static_cast<double>(left_out)));
  }
  return html;
}

std::string settings_tables(const std::vector<RunRecord>& runs) {
  std::string html;
  std::vector<SettingsOfRun> all;
  bool has_earlier = false;
  for (const RunRecord& run : runs) {
    all.push_back({&run.earlier, &run.settings});
    has_earlier = has_earlier || !run.earlier.empty();
  }
  if (runs.size() > 1 || has_earlier) {
    HtmlTable table{"Settings that differ", {{"setting"}}, {}};
    for (const RunRecord& run : runs) table.rows[0].push_back(run.name);
    for (const SettingDifference& difference : differences_of(all)) {
      table.rows.push_back({difference.name});
      for (const std::string& value : difference.values) table.rows.back().push_back(value);
    }
    html += table.rows.size() > 1 ? html_table(table) : "<p>The configurations are the same.</p>\n";
  }
  for (const RunRecord& run : runs) {
    if (run.settings.empty()) continue;
    HtmlTable table{"", {{"setting", "value"}}, {}};
    for (const auto& [name, value] : run.settings) table.rows.push_back({name, value});
    html += html_details("All settings of " + run.name, html_table(table));
  }
  return html;
}

}  // namespace athanor::inline report
