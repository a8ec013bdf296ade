#include "plot/run_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "plot/curve.h"
#include "plot/run_metrics.h"
#include "plot/run_name.h"
#include "plot/worked_time.h"
#include "record/step_table.h"

namespace athanor::inline plot {
namespace {

namespace fs = std::filesystem;

struct PlottedRun {
  std::string name;
  fs::path metrics;
};

std::vector<PlottedRun> find_runs(const std::vector<std::string>& given) {
  std::vector<PlottedRun> runs;
  for (const auto& each : given) {
    PlottedRun run{name_of_run(each), find_metrics(each)};
    const auto same = [&](const PlottedRun& other) { return fs::equivalent(run.metrics, other.metrics); };
    if (const auto found = std::ranges::find_if(runs, same); found != runs.end()) {
      log::warn("{} is the same run as {}; it is drawn once", run.name, found->name);
    } else {
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

// ---- The horizontal axis -------------------------------------------------------------------------------------------

std::vector<std::string> fields_of_axis(XAxis axis) {
  if (axis == XAxis::kTokens) return {"tokens_seen"};
  if (axis == XAxis::kTime) return {"time", "attempt", "step_s"};
  return {"step"};
}

std::vector<double> x_values(const StepTable& table, XAxis axis, const std::string& run) {
  const bool known = std::ranges::any_of(table.columns[0], [](double value) { return std::isfinite(value); });
  ATHANOR_CHECK(known || table.steps.empty(), "no step of {} has the number {}, which --x {} needs; choose another --x",
                run, fields_of_axis(axis)[0], axis == XAxis::kTime ? "time" : "tokens");
  return axis == XAxis::kTime ? worked_seconds(table.columns[0], table.columns[1], table.columns[2]) : table.columns[0];
}

// ---- Curves --------------------------------------------------------------------------------------------------------

// Steps with their places on the axis.
struct Places {
  XAxis axis;
  std::vector<double> steps, x;

  // Returns the points of the values that can be drawn.
  std::vector<Point> with(const std::vector<double>& y) const {
    std::vector<Point> points;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i]) || !is_drawable(y[i])) continue;
      Point point{steps[i], y[i]};
      if (axis == XAxis::kTokens) point.tokens = x[i];
      if (axis == XAxis::kTime) point.seconds = x[i];
      points.push_back(point);
    }
    return points;
  }
};

[[noreturn]] void refuse_field(const std::string& field, const PlottedRun& run, bool not_finite, size_t num_steps) {
  ATHANOR_CHECK(!not_finite, "{} is not finite in any of the {} steps of {}", field, num_steps, run.name);
  const auto known = list_numeric_fields(run.metrics);
  std::vector<std::string> inside;
  for (const auto& name : known) {
    if (name.starts_with(field + ".")) inside.push_back(name);
  }
  ATHANOR_CHECK(inside.empty(), "{} has several numbers; choose from {}", field, join(inside));
  fail<ConfigError>("no step of {} has a number {}{}; there are {}", run.name, field, did_you_mean(field, known),
                    join(known));
}

// The curves of all fields, run after run, so that each file is read once.
class RunFigures {
 public:
  explicit RunFigures(const PlotRequest& request) : request_(request), runs_(find_runs(request.runs)) {
    for (const auto& field : request.fields)
      figures_.push_back({.title = field, .unit = field == "loss" ? "nats a token" : "", .x_axis = request.x});
  }

  std::vector<Figure> make() {
    for (const auto& run : runs_) add(run);
    for (size_t i = 0; i < figures_.size(); ++i)
      if (figures_[i].curves.empty()) refuse_field(request_.fields[i], runs_[0], first_not_finite_[i], first_steps_);
    figures_[0].levels = request_.levels;
    return std::move(figures_);
  }

 private:
  void add(const PlottedRun& run) {
    std::vector<std::string> names = fields_of_axis(request_.x);
    const size_t first = names.size(), validation = first + request_.fields.size();
    names.insert(names.end(), request_.fields.begin(), request_.fields.end());
    names.emplace_back("validation_loss");
    const StepTable table = read_step_table(run.metrics, names);
    check_steps(run.metrics, table);
    const Places places{request_.x, table.steps, x_values(table, request_.x, run.name)};
    for (size_t i = 0; i < request_.fields.size(); ++i) {
      const auto& y = table.columns[first + i];
      note_first(run, i, y);
      Curve curve{.name = "", .ink = static_cast<size_t>(&run - runs_.data())};
      const auto points = places.with(y);
      if (request_.fields[i] == "loss") add_validation(places.with(table.columns[validation]), curve);
      if (points.empty() && curve.dots.empty()) {
        if (runs_.size() > 1) log::warn("no step of {} has a finite {}; it is left out", run.name, request_.fields[i]);
        continue;
      }
      set_smoothed_line(points, request_.window, curve);
      curve.name = run.name + ": " + name_of_line(request_.fields[i], curve.line);
      figures_[i].curves.push_back(std::move(curve));
    }
  }

  static std::string name_of_line(const std::string& field, const std::vector<Point>& points) {
    const std::string name = field == "loss" ? "training loss" : field;
    return points.empty() ? name : fmt::format("{} {:.4g}", name, points.back().y);
  }

  static void add_validation(const std::vector<Point>& points, Curve& curve) {
    if (points.empty()) return;
    curve.dots_name = fmt::format("validation loss {:.4g}", points.back().y);
    curve.dots = thin(points);
  }

  // Keeps what the message needs if no run has the field.
  void note_first(const PlottedRun& run, size_t field, const std::vector<double>& y) {
    if (&run != &runs_[0]) return;
    first_not_finite_.resize(figures_.size());
    first_not_finite_[field] =
        std::ranges::any_of(y, [](double value) { return !std::isnan(value) && !is_drawable(value); });
    first_steps_ = y.size();
  }

  const PlotRequest& request_;
  std::vector<PlottedRun> runs_;
  std::vector<Figure> figures_;
  std::vector<bool> first_not_finite_;
  size_t first_steps_ = 0;
};

}  // namespace

std::vector<Figure> make_run_figures(const PlotRequest& request) { return RunFigures(request).make(); }

}  // namespace athanor::inline plot
