#pragma once
// A chart of a report: lines over the steps of runs, before it is drawn. Each point knows where it is on every
// horizontal axis, so that a reader can change it.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace athanor::inline report {

enum class ChartAxis { kTokens, kSteps, kTime };

struct ChartPoint {
  double step = 0, tokens = 0, seconds = 0;  ///< where it is; not finite if that is not known
  double value = 0;                          ///< finite

  double at(ChartAxis axis) const;
};

struct ChartSeries {
  std::string name;
  size_t ink = 0;                 ///< the colour: that of the run, or of the part
  std::vector<ChartPoint> line;   ///< by step
  std::vector<ChartPoint> faint;  ///< what the line smooths; may be empty
  std::vector<ChartPoint> dots;
  std::vector<double> errors;  ///< one for each point of the line, drawn as a band of value ± error; may be empty
};

/// An event on the time line.
struct ChartMark {
  ChartPoint at;
  size_t ink = 0;
  std::string text;
};

struct ChartLevel {
  std::string name;
  double value;
};

struct Chart {
  std::string id;           ///< a name for links and files: "loss"
  std::string title;        ///< "Loss"
  std::string unit;         ///< what the values are: "nats a token"
  std::string note;         ///< a sentence below it; may be empty
  bool is_stacked = false;  ///< each series is an area on those before it; their points have the same steps
  bool is_wide = false;
  std::vector<ChartSeries> series;
  std::vector<ChartLevel> levels;
  std::vector<ChartMark> marks;

  bool has_points() const;
  /// Returns whether the axis is known at every point.
  bool has(ChartAxis axis) const;
};

/// A picture of numbers in rows and columns: loads of experts by layer over time.
struct HeatMap {
  std::string id, title, unit;
  std::string row_name;                     ///< "layer"
  std::vector<ChartPoint> columns;          ///< where each column ends; their values mean nothing
  std::vector<std::vector<double>> values;  ///< for each row and column; NaN: none
  /// the values of the palest and the darkest field; none: the least and the largest there are
  std::optional<std::pair<double, double>> scale = {};

  /// Returns the least and the largest finite value; (infinity, −infinity) if there is none.
  std::pair<double, double> range() const;
};

}  // namespace athanor::inline report
