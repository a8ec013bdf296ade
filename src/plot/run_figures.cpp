#include "plot/run_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "plot/run_metrics.h"
#include "plot/run_name.h"
#include "plot/worked_time.h"
#include "record/step_table.h"

namespace athanor::inline plot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPoints = 2000, kColumns = 700;  // more points, or columns, than a picture shows
constexpr double kLargest = 1e300;                    // beyond this the length of an axis could overflow

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

std::vector<std::string> fields_of_axis(PlotAxis axis) {
  if (axis == PlotAxis::kTokens) return {"tokens_seen"};
  if (axis == PlotAxis::kTime) return {"time", "attempt", "step_s"};
  return {"step"};
}

std::vector<double> x_values(const StepTable& table, PlotAxis axis, const std::string& run) {
  const bool known = std::ranges::any_of(table.columns[0], [](double value) { return std::isfinite(value); });
  ATHANOR_CHECK(known || table.steps.empty(), "no step of {} has the number {}, which --x {} needs; choose another --x",
                run, fields_of_axis(axis)[0], axis == PlotAxis::kTime ? "time" : "tokens");
  return axis == PlotAxis::kTime ? worked_seconds(table.columns[0], table.columns[1], table.columns[2])
                                 : table.columns[0];
}

struct TimeUnit {
  double seconds;
  const char* name;
};

TimeUnit time_unit(double longest_s) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour;
  if (longest_s < 3 * kMinute) return {1, "seconds"};
  if (longest_s < 3 * kHour) return {kMinute, "minutes"};
  if (longest_s < 3 * kDay) return {kHour, "hours"};
  return {kDay, "days"};
}

// Time has been measured in seconds; the axis gets the unit that its length asks for.
void set_time_unit(std::vector<Figure>& figures) {
  double longest = 0;
  const auto all = [&](const auto& visit) {
    for (auto& figure : figures)
      for (auto& curve : figure.curves)
        for (auto* points : {&curve.line, &curve.faint, &curve.dots})
          for (auto& point : *points) visit(point);
  };
  all([&](const Point& point) { longest = std::max(longest, point.x); });
  const TimeUnit unit = time_unit(longest);
  all([&](Point& point) { point.x /= unit.seconds; });
  for (auto& figure : figures) figure.x_label = unit.name + std::string(" of training");
}

// ---- Curves --------------------------------------------------------------------------------------------------------

std::vector<Point> finite_points(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<Point> points;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i]) && std::abs(y[i]) < kLargest) points.push_back({x[i], y[i]});
  }
  return points;
}

// Draws `points` as the line of `curve`; returns how many steps a point of it is the mean of.
size_t draw_line_of(const std::vector<Point>& points, size_t window, Curve& curve) {
  if (window == 0) window = usual_window(points.size());
  window = std::min(window | 1, (std::max<size_t>(points.size(), 1) - 1) | 1);
  curve.line = window == 1 ? thin(points, kColumns) : smooth(points, window, kMostPoints);
  if (window > 1) curve.faint = thin(points, kColumns);
  return window;
}

std::string note_of(const std::vector<size_t>& windows) {
  const auto [least, most] = std::ranges::minmax(windows);
  if (most == 1) return "";
  const auto shown = [](size_t window) { return format_thousands(static_cast<double>(window)); };
  const auto counts = least == most ? shown(most) : shown(least) + " to " + shown(most);
  return fmt::format("Each line is the mean over {} steps (--smooth)", counts);
}

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
  explicit RunFigures(const PlotRequest& request)
      : request_(request), runs_(find_runs(request.runs)), windows_(request.fields.size()) {
    for (const auto& field : request.fields) {
      figures_.push_back({field == "loss" ? "loss, nats a token" : field,
                          request.x == PlotAxis::kTokens ? "tokens" : "step",
                          {},
                          {},
                          ""});
    }
  }

  std::vector<Figure> make() {
    for (const auto& run : runs_) add(run);
    for (size_t i = 0; i < figures_.size(); ++i) {
      if (figures_[i].curves.empty()) refuse_field(request_.fields[i], runs_[0], first_not_finite_[i], first_steps_);
      figures_[i].note = note_of(windows_[i]);
    }
    figures_[0].levels = request_.levels;
    if (request_.x == PlotAxis::kTime) set_time_unit(figures_);
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
    const auto x = x_values(table, request_.x, run.name);
    for (size_t i = 0; i < request_.fields.size(); ++i) {
      const auto& y = table.columns[first + i];
      note_first(run, i, y);
      Curve curve;
      const auto points = finite_points(x, y);
      if (request_.fields[i] == "loss") add_validation(finite_points(x, table.columns[validation]), curve);
      if (points.empty() && curve.dots.empty()) {
        if (runs_.size() > 1) log::warn("no step of {} has a finite {}; it is left out", run.name, request_.fields[i]);
        continue;
      }
      windows_[i].push_back(draw_line_of(points, request_.window, curve));
      curve.name = run.name + ": " + name_of_line(request_.fields[i], curve.line);
      figures_[i].curves.push_back(std::move(curve));
    }
  }

  static std::string name_of_line(const std::string& field, const std::vector<Point>& points) {
    const std::string name = field == "loss" ? "training loss" : field;
    return points.empty() ? name : fmt::format("{} {:.4g}", name, points.back().y);
  }

  static void add_validation(std::vector<Point> points, Curve& curve) {
    if (points.empty()) return;
    curve.dots_name = fmt::format("validation loss {:.4g}", points.back().y);
    curve.dots = points.size() > kColumns ? thin(points, kColumns) : std::move(points);
  }

  // Keeps what the message needs if no run has the field.
  void note_first(const PlottedRun& run, size_t field, const std::vector<double>& y) {
    if (&run != &runs_[0]) return;
    first_not_finite_.resize(figures_.size());
    first_not_finite_[field] = std::ranges::any_of(y, [](double value) { return std::abs(value) >= kLargest; });
    first_steps_ = y.size();
  }

  const PlotRequest& request_;
  std::vector<PlottedRun> runs_;
  std::vector<Figure> figures_;
  std::vector<std::vector<size_t>> windows_;
  std::vector<bool> first_not_finite_;
  size_t first_steps_ = 0;
};

}  // namespace

std::vector<Figure> make_run_figures(const PlotRequest& request) { return RunFigures(request).make(); }

}  // namespace athanor::inline plot
