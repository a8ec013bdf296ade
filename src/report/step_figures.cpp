#include "report/step_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plot/curve.h"
#include "report/step_points.h"

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

void add_marks(const RunRecord& run, size_t ink, Figure& figure) {
  size_t shown = 0;
  for (const RunEvent& event : run.events) {
    if (!event.is_shown || ++shown > kMostMarks) continue;
    const std::string what =
        fmt::format("step {}: {}{}{}", event.step, event.kind, event.text.empty() ? "" : ", ", event.text);
    figure.marks.push_back({place_of_step(run.steps, static_cast<double>(event.step)), ink, what});
  }
}

Figure loss_figure(const std::vector<RunRecord>& runs) {
  Figure figure{.id = "loss", .title = "Loss", .unit = "nats a token", .is_wide = true};
  bool has_dots = false;
  for (size_t i = 0; i < runs.size(); ++i) {
    const StepRecord& steps = runs[i].steps;
    Curve& curve = figure.curves.emplace_back(Curve{.name = runs[i].name, .dots_name = "held-out text", .ink = i});
    set_smoothed_line(points_of(steps, steps.field("loss")), 0, curve);
    curve.dots = thin(points_of(steps, steps.field("validation_loss")));
    has_dots = has_dots || !curve.dots.empty();
    add_marks(runs[i], i, figure);
  }
  if (has_dots) figure.notes.emplace_back("Dots are losses of held-out text.");
  if (!figure.marks.empty()) figure.notes.emplace_back("Triangles are events, which the table of events lists.");
  return figure;
}

Figure figure_of(const Shown& shown, const std::vector<RunRecord>& runs) {
  Figure figure{.id = shown.id, .title = shown.title, .unit = shown.unit};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto points = points_of(runs[i].steps, scaled(runs[i].steps.field(shown.field), shown.factor));
    set_smoothed_line(points, shown.is_smoothed ? 0 : 1,
                      figure.curves.emplace_back(Curve{.name = runs[i].name, .ink = i}));
    if (figure.id == "grad-norm") add_marks(runs[i], i, figure);
  }
  return figure;
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

void add_areas(const StepRecord& steps, const std::vector<std::pair<std::string, std::vector<double>>>& parts,
               OfBin what, Figure& figure) {
  figure.is_stacked = true;
  const StepBins bins = make_bins(steps, kMostBins);
  for (const auto& [name, values] : parts) {
    Curve curve{.name = name, .ink = figure.curves.size()};
    const auto mean = means(bins, values);
    for (size_t i = 0; i < mean.size(); ++i) {
      const size_t last = bins.ends[i] - 1;
      curve.line.push_back(place_of(steps, last, finite_or_zero(what == OfBin::kMean ? mean[i] : values[last])));
    }
    figure.curves.push_back(std::move(curve));
  }
}

// The routers of a sparse model have an entropy in every step.
bool is_dense(const RunRecord& run) {
  return std::ranges::none_of(run.steps.field("router_entropy"), [](double entropy) { return entropy > 0; });
}

}  // namespace

std::vector<Figure> figures_of_runs(const std::vector<RunRecord>& runs) {
  std::vector<Figure> figures;
  figures.push_back(loss_figure(runs));
  for (const Shown& shown : kShown) figures.push_back(figure_of(shown, runs));
  const bool all_dense = std::ranges::all_of(runs, is_dense);
  std::erase_if(figures, [&](const Figure& figure) {
    return !figure.has_points() || (all_dense && (figure.id == "aux" || figure.id == "entropy"));
  });
  return figures;
}

std::vector<Figure> time_figures(const RunRecord& run) {
  if (!run.steps.has("step_s")) return {};
  Figure figure{.id = "time",
                .title = "Where time goes",
                .unit = "seconds a step, on the first rank",
                .is_wide = true,
                .notes = {"Between steps a run validates, evaluates and saves."}};
  add_areas(run.steps, parts_of(run.steps), OfBin::kMean, figure);
  return {std::move(figure)};
}

std::vector<Figure> source_figures(const RunRecord& run) {
  if (run.steps.sources.size() < 2) return {};
  std::vector<std::pair<std::string, std::vector<double>>> parts;
  for (const std::string& source : run.steps.sources)
    parts.emplace_back(source, run.steps.field("tokens_drawn." + source));
  Figure figure{.id = "sources", .title = "Data drawn from each source", .unit = "tokens since the run began"};
  add_areas(run.steps, parts, OfBin::kLast, figure);
  return {std::move(figure)};
}

std::vector<Figure> load_maps(const RunRecord& run) {
  if (run.steps.num_router_layers == 0) return {};
  Figure figure{.id = "loads",
                .title = "Load of the busiest expert",
                .unit = "over the mean of the layer's experts; 1 is balanced",
                .is_wide = true};
  figure.heat_map.row_name = "sparse layer";
  const StepBins bins = make_bins(run.steps, kMostBins);
  for (const size_t end : bins.ends) figure.heat_map.columns.push_back(place_of(run.steps, end - 1, 0));
  for (size_t layer = 0; layer < run.steps.num_router_layers; ++layer)
    figure.heat_map.values.push_back(means(bins, run.steps.field(fmt::format("expert_load_max_over_mean.{}", layer))));
  return {std::move(figure)};
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
