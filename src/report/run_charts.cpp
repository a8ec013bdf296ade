#include "report/run_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/chart_points.h"

namespace athanor::inline report {
namespace {

struct Shown {
  const char *id, *title, *unit, *field;
  double factor;  // by which the field is multiplied
  bool is_smoothed;
};

constexpr size_t kMostMarks = 500;
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr Shown kShown[] = {
    {"lr", "Learning rate", "", "lr", 1, false},
    {"grad-norm", "Gradient norm", "before clipping", "grad_norm", 1, true},
    {"noise-scale", "Gradient noise scale", "sequences, from means over the steps that measure it", "noise_scale", 1,
     false},
    {"changed", "Share of changed weights", "of the weights, in each update", "changed_share", 1, true},
    {"clipped", "Share of clipped elements", "of those that Sophia-G updates", "clipped_share", 1, true},
    {"attention-logit", "Largest logit of attention", "of all layers and heads, before QK-clip", "attention_logit_max",
     1, false},
    {"clipped-heads", "Clipped heads", "query heads whose weights QK-clip scaled", "clipped_heads", 1, false},
    {"tps", "Throughput", "tokens a second", "tps", 1, true},
    {"mfu", "MFU", "% of the peak of its ranks, as it was measured or configured", "mfu", 100, true},
    {"memory", "Memory", "GiB of the first rank's process", "memory_bytes", 1 / kGiB, false},
    {"device-memory", "Device memory", "GiB of tensors on the first rank's device", "device_memory_bytes", 1 / kGiB,
     false},
    {"aux", "Load-balancing loss", "before its coefficient", "aux_loss", 1, true},
    {"entropy", "Entropy of the router", "nats", "router_entropy", 1, true},
};

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::string note_of(size_t least, size_t most) {
  if (most <= 1) return "";
  const auto shown = [](size_t window) { return format_thousands(static_cast<double>(window)); };
  return fmt::format("Each line is the mean over {} steps; the pale one has every step.",
                     least == most ? shown(most) : shown(least) + " to " + shown(most));
}

void add_marks(const RunRecord& run, size_t ink, Chart& chart) {
  size_t shown = 0;
  for (const RunEvent& event : run.events) {
    if (!event.is_shown || ++shown > kMostMarks) continue;
    const std::string what =
        fmt::format("step {}: {}{}{}", event.step, event.kind, event.text.empty() ? "" : ", ", event.text);
    chart.marks.push_back({place_of_step(run.steps, event.step), ink, what});
  }
}

Chart loss_chart(const std::vector<RunRecord>& runs) {
  Chart chart{.id = "loss",
              .title = "Loss",
              .unit = "nats a token",
              .note = "",
              .is_wide = true,
              .series = {},
              .levels = {},
              .marks = {}};
  size_t least = SIZE_MAX, most = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    ChartSeries series{.name = runs[i].name, .ink = i, .line = {}, .faint = {}, .dots = {}, .errors = {}};
    const size_t window = add_smoothed(runs[i].steps, runs[i].steps.field("loss"), series);
    least = std::min(least, window);
    most = std::max(most, window);
    series.dots = thinned(runs[i].steps, runs[i].steps.field("validation_loss"));
    chart.series.push_back(std::move(series));
    add_marks(runs[i], i, chart);
  }
  chart.note = note_of(least, most);
  const bool has_dots = std::ranges::any_of(chart.series, [](const auto& series) { return !series.dots.empty(); });
  if (has_dots) chart.note += (chart.note.empty() ? "" : " ") + std::string("Dots are losses of held-out text.");
  if (!chart.marks.empty())
    chart.note +=
        (chart.note.empty() ? "" : " ") + std::string("Triangles are events, which the table of events lists.");
  return chart;
}

Chart chart_of(const Shown& shown, const std::vector<RunRecord>& runs) {
  Chart chart{
      .id = shown.id, .title = shown.title, .unit = shown.unit, .note = "", .series = {}, .levels = {}, .marks = {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto values = scaled(runs[i].steps.field(shown.field), shown.factor);
    ChartSeries series{.name = runs[i].name, .ink = i, .line = {}, .faint = {}, .dots = {}, .errors = {}};
    if (shown.is_smoothed)
      add_smoothed(runs[i].steps, values, series);
    else
      series.line = thinned(runs[i].steps, values);
    chart.series.push_back(std::move(series));
    if (chart.id == "grad-norm") add_marks(runs[i], i, chart);
  }
  return chart;
}

// ---- Where time goes -----------------------------------------------------------------------------------------------

struct Part {
  const char *name, *field;
};
constexpr Part kParts[] = {
    {"waiting for data", "data_s"},
    {"forward: compute", "forward_compute_s"},
    {"forward: communication", "forward_comm_s"},
    {"backward: compute", "backward_compute_s"},
    {"backward: communication", "backward_comm_s"},
    {"optimizer", "optimizer_s"},
};
constexpr size_t kMostBins = 60;

double finite_or_zero(double value) { return std::isfinite(value) ? value : 0; }

// The seconds between the step before and each step: validation, evaluation, saves and the log.
std::vector<double> seconds_between(const StepRecord& steps) {
  const auto& step_s = steps.field("step_s");
  std::vector<double> between(steps.size());
  for (size_t i = 1; i < steps.size(); ++i)
    between[i] = std::max(0.0, finite_or_zero(steps.seconds[i] - steps.seconds[i - 1] - step_s[i]));
  return between;
}

// What a step took and none of its parts did.
std::vector<double> rest_of_step(const StepRecord& steps) {
  std::vector<double> rest = steps.field("step_s");
  for (const Part& part : kParts) {
    const auto& values = steps.field(part.field);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= finite_or_zero(values[i]);
  }
  for (double& value : rest) value = std::max(0.0, finite_or_zero(value));
  return rest;
}

std::vector<std::pair<std::string, std::vector<double>>> parts_of(const StepRecord& steps) {
  std::vector<std::pair<std::string, std::vector<double>>> parts;
  for (const Part& part : kParts)
    if (steps.has(part.field)) parts.emplace_back(part.name, steps.field(part.field));
  parts.emplace_back("rest of the step", rest_of_step(steps));
  parts.emplace_back("between steps", seconds_between(steps));
  return parts;
}

enum class OfBin { kMean, kLast };

Chart stacked(const RunRecord& run, const std::vector<std::pair<std::string, std::vector<double>>>& parts, OfBin what) {
  Chart chart;
  chart.is_stacked = true;
  const StepBins bins = make_bins(run.steps, kMostBins);
  size_t ink = 0;
  for (const auto& [name, values] : parts) {
    ChartSeries series{.name = name, .ink = ink++, .line = {}, .faint = {}, .dots = {}, .errors = {}};
    const auto mean = means(bins, values);
    for (size_t i = 0; i < mean.size(); ++i) {
      const size_t last = bins.ends[i] - 1;
      series.line.push_back(place_of(run.steps, last, finite_or_zero(what == OfBin::kMean ? mean[i] : values[last])));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// The routers of a sparse model have an entropy in every step.
bool is_dense(const RunRecord& run) {
  return std::ranges::none_of(run.steps.field("router_entropy"), [](double entropy) { return entropy > 0; });
}

}  // namespace

std::vector<Chart> charts_of_runs(const std::vector<RunRecord>& runs) {
  std::vector<Chart> charts;
  charts.push_back(loss_chart(runs));
  for (const Shown& shown : kShown) charts.push_back(chart_of(shown, runs));
  std::erase_if(charts, [](const Chart& chart) { return !chart.has_points(); });
  if (std::ranges::all_of(runs, is_dense))
    std::erase_if(charts, [](const Chart& chart) { return chart.id == "aux" || chart.id == "entropy"; });
  return charts;
}

std::vector<Chart> time_charts(const RunRecord& run) {
  if (!run.steps.has("step_s")) return {};
  Chart chart = stacked(run, parts_of(run.steps), OfBin::kMean);
  chart.id = "time";
  chart.title = "Where time goes";
  chart.unit = "seconds a step, on the first rank";
  chart.note = "Between steps a run validates, evaluates and saves.";
  chart.is_wide = true;
  return {std::move(chart)};
}

std::vector<Chart> source_charts(const RunRecord& run) {
  if (run.steps.sources.size() < 2) return {};
  std::vector<std::pair<std::string, std::vector<double>>> parts;
  for (const std::string& source : run.steps.sources)
    parts.emplace_back(source, run.steps.field("tokens_drawn." + source));
  Chart chart = stacked(run, parts, OfBin::kLast);
  chart.id = "sources";
  chart.title = "Data drawn from each source";
  chart.unit = "tokens since the run began";
  return {std::move(chart)};
}

std::vector<HeatMap> load_maps(const RunRecord& run) {
  if (run.steps.num_router_layers == 0) return {};
  HeatMap map{.id = "loads",
              .title = "Load of the busiest expert",
              .unit = "over the mean of the layer's experts; 1 is balanced",
              .row_name = "sparse layer",
              .columns = {},
              .values = {}};
  const StepBins bins = make_bins(run.steps, kMostBins);
  for (const size_t end : bins.ends) map.columns.push_back(place_of(run.steps, end - 1, 0));
  for (size_t layer = 0; layer < run.steps.num_router_layers; ++layer)
    map.values.push_back(means(bins, run.steps.field(fmt::format("expert_load_max_over_mean.{}", layer))));
  return {std::move(map)};
}

std::vector<TimeShare> time_shares(const RunRecord& run) {
  std::vector<TimeShare> shares;
  if (!run.steps.has("step_s")) return shares;
  for (const auto& [name, values] : parts_of(run.steps)) {
    TimeShare share{name, 0};
    for (const double value : values) share.seconds += finite_or_zero(value);
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace athanor::inline report
