// Curves, axes and the two kinds of pictures.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plot/curve.h"
#include "plot/figure_axes.h"
#include "plot/svg_picture.h"
#include "plot/terminal_picture.h"

namespace athanor::picture_test {
namespace {

std::vector<std::string> labels_of(const TickedAxis& axis) {
  std::vector<std::string> labels;
  for (const auto& tick : axis.ticks) labels.push_back(tick.label);
  return labels;
}

TEST(Ticks, StandAtRoundNumbersWithinTheAxis) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels_of(horizontal_axis(1, 860, 5)), (Labels{"0", "200", "400", "600", "800"}));
  EXPECT_EQ(labels_of(horizontal_axis(1e5, 3.5e6, 4)), (Labels{"0", "1M", "2M", "3M"}));
  EXPECT_EQ(labels_of(horizontal_axis(0, 4000, 4)), (Labels{"0", "1,000", "2,000", "3,000", "4,000"}));
  EXPECT_EQ(labels_of(vertical_axis(0.00012, 0.0005, 4)), (Labels{"0.0002", "0.0004"}));
  EXPECT_EQ(labels_of(vertical_axis(-1, 1, 4)), (Labels{"-1", "0", "1"}));
}

TEST(Ticks, OfLogarithmsShowTheNumbersThemselves) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels_of(logarithmic_axis(-6.03, 1, 8)),
            (Labels{"1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10"}));
  EXPECT_EQ(labels_of(logarithmic_axis(std::log10(3e-4), std::log10(6e-3), 8)),
            (Labels{"0.0005", "0.001", "0.002", "0.005"}));
  EXPECT_EQ(labels_of(logarithmic_axis(-3, -3, 8)), (Labels{"0.0005", "0.001", "0.002"}));
  for (const int most : {2, 4}) EXPECT_LE(logarithmic_axis(-12, 6, most).ticks.size(), static_cast<size_t>(most + 1));
}

TEST(Ticks, OfTimeHaveTheUnitThatItsLengthAsksFor) {
  using Labels = std::vector<std::string>;
  const auto axis = time_axis(2, 7200, 4);
  EXPECT_EQ(labels_of(axis), (Labels{"0", "50", "100"}));
  EXPECT_EQ(axis.label, "minutes of training");
  EXPECT_EQ(axis.share(3600), 0.5) << "values are seconds";
  EXPECT_EQ(time_axis(0, 170, 4).label, "seconds of training");
  EXPECT_EQ(time_axis(0, 7200 * 12, 4).label, "hours of training");
  EXPECT_EQ(time_axis(0, 7200 * 120, 4).label, "days of training");
}

TEST(Ticks, AValueAloneHasRoomAroundIt) {
  for (const double value : {0.0, 5.0, -3.0, 1e-12, 1e12}) {
    const auto axis = vertical_axis(value, value, 5);
    EXPECT_LT(axis.low, value + (value == 0 ? 0 : -std::abs(value) * 1e-3) + (value == 0 ? 1e-9 : 0)) << value;
    EXPECT_GT(axis.high, value) << value;
    EXPECT_GE(axis.ticks.size(), 1u) << value;
    EXPECT_LE(axis.ticks.size(), 12u) << value;
  }
}

std::vector<Point> ramp(size_t count) {
  std::vector<Point> points;
  for (size_t i = 0; i < count; ++i) points.push_back({static_cast<double>(i), static_cast<double>(i)});
  return points;
}

TEST(Smoothing, IsTheMeanAroundAPointAndShrinksAtTheBeginning) {
  const auto smoothed = smooth(ramp(11), 5, 100);
  ASSERT_EQ(smoothed.size(), 11u);
  EXPECT_EQ(smoothed[0], (Point{0, 0}));
  EXPECT_EQ(smoothed[1], (Point{1, 1}));
  EXPECT_EQ(smoothed[5], (Point{5, 5}));
  EXPECT_EQ(smoothed[10], (Point{10, 9})) << "the mean of 8, 9 and 10";
  EXPECT_EQ(smooth(ramp(1000), 1, 10).size(), 10u);
  EXPECT_EQ(smooth(ramp(1000), 1, 10).back(), (Point{999, 999}));
}

TEST(Smoothing, BeginsAtTwoHundredStepsWithOddWindows) {
  EXPECT_EQ(usual_window(199), 1u);
  EXPECT_EQ(usual_window(200), 5u);
  EXPECT_EQ(usual_window(1'000'000), 20'001u);
}

TEST(Thinning, KeepsTheExtremesOfEachColumn) {
  auto points = ramp(100'000);
  for (auto& point : points) point.y = 1;
  points[12'345].y = 9;
  points[54'321].y = -9;
  const auto thinned = thin(points, 100);
  EXPECT_LE(thinned.size(), 404u);
  EXPECT_NE(std::ranges::find(thinned, points[12'345]), thinned.end());
  EXPECT_NE(std::ranges::find(thinned, points[54'321]), thinned.end());
  EXPECT_EQ(thinned.back(), points.back());
  EXPECT_TRUE(thin({}, 10).empty());
}

Figure falling_loss() {
  Figure figure{.title = "loss"};
  Curve curve{.name = "run: loss 1", .dots_name = "validation loss 2", .dots = {{5, 5}}};
  for (int i = 0; i <= 10; ++i) curve.line.push_back({static_cast<double>(i), 10.0 - i});
  figure.curves.push_back(curve);
  return figure;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The columns that a line of UTF-8 takes.
size_t width_of(const std::string& line) {
  return static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(TerminalPicture, IsAsWideAsTheTerminalAndFallsFromLeftToRight) {
  for (const int columns : {40, 80, 200}) {
    const auto text = draw_on_terminal(falling_loss(), {columns, 24, true, false});
    size_t widest = 0;
    for (const auto& line : lines_of(text)) widest = std::max(widest, width_of(line));
    EXPECT_EQ(widest, static_cast<size_t>(columns) - 1);
    EXPECT_LE(lines_of(text).size(), 24u);
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt);
  }
  const auto lines = lines_of(draw_on_terminal(falling_loss(), {80, 24, false, false}));
  size_t before = 0;
  for (const auto& line : lines) {
    if (line.find('|') == line.npos && line.find('+') == line.npos) continue;
    const size_t last = line.find_last_of('*');
    if (last == line.npos) continue;
    EXPECT_GE(last, before) << line;
    before = last;
  }
  EXPECT_GT(before, 70u);
}

TEST(TerminalPicture, WithoutBrailleHasPlainCharactersAndALetterForEachCurve) {
  auto figure = falling_loss();
  figure.curves.push_back(figure.curves[0]);
  figure.curves[1].name = "other";
  figure.curves[1].ink = 1;
  for (auto& point : figure.curves[1].line) point.y = 10 - point.y;
  const auto text = draw_on_terminal(figure, {80, 24, false, false});
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  EXPECT_NE(text.find("aa run: loss 1   A validation loss 2"), text.npos) << text;
  EXPECT_NE(text.find("bb other"), text.npos);
  EXPECT_GT(count(text, "b"), 10u);
}

TEST(TerminalPicture, ColoursTwoRunsDifferently) {
  auto figure = falling_loss();
  figure.curves.push_back(figure.curves[0]);
  figure.curves[1].ink = 1;
  const auto text = draw_on_terminal(figure, {80, 24, true, true});
  EXPECT_NE(text.find("\033[38;5;33m━━"), text.npos);
  EXPECT_NE(text.find("\033[38;5;208m━━"), text.npos);
}

TEST(Pictures, OnePointIsSeen) {
  const Figure figure{.title = "loss", .curves = {{.name = "run", .line = {{1, 9}}}}};
  EXPECT_EQ(count(draw_on_terminal(figure, {80, 24, false, false}), "*"), 3u) << "two of them in the legend";
  EXPECT_EQ(count(draw_svg({figure}), "<circle"), 1u);
}

TEST(SvgPicture, ShowsEachAxisThatPointsKnow) {
  Figure figure = falling_loss();
  EXPECT_FALSE(figure.has(XAxis::kTokens));
  for (auto* points : {&figure.curves[0].line, &figure.curves[0].dots})
    for (Point& point : *points) point.tokens = 1e6 * point.x;
  EXPECT_TRUE(figure.has(XAxis::kTokens));
  figure.x_axis = XAxis::kTokens;
  EXPECT_NE(draw_svg({figure}).find(">10M<"), std::string::npos);
}

TEST(SvgPicture, StacksAreasOnOneAnother) {
  Figure figure{.title = "time", .is_stacked = true};
  for (size_t i = 0; i < 2; ++i) figure.curves.push_back({.name = "part", .ink = i, .line = {{0, 1}, {1, 3}}});
  EXPECT_EQ(stacked_up(figure).curves[1].line[1].y, 6);
  const TickedAxis axis = y_axis_of(stacked_up(figure), 5);
  EXPECT_TRUE(axis.low == 0 && axis.high >= 6);
  EXPECT_EQ(count(draw_svg({figure}), "class=\"area\""), 2u);
}

TEST(SvgPicture, CutsOffFaintValuesThatAreFarOffAndSaysSo) {
  Figure figure = falling_loss();
  for (size_t i = 0; i < 300; ++i)
    figure.curves[0].faint.push_back({static_cast<double>(i) / 30, i == 99 ? 1000.0 : 5});
  EXPECT_LT(y_axis_of(figure, 5).high, 11);
  EXPECT_NE(draw_svg({figure}).find("all are between 5 and 1000"), std::string::npos);
  figure.curves[0].faint[99].y = 20;
  EXPECT_GT(y_axis_of(figure, 5).high, 20);
  EXPECT_EQ(values_outside(figure), std::nullopt);
  figure.holds_faint = false;
  EXPECT_LT(y_axis_of(figure, 5).high, 11);
  EXPECT_NE(values_outside(figure), std::nullopt);
}

TEST(SvgPicture, ShowsAHeatMapWithWhatItsColoursMean) {
  const Figure figure{.title = "loads", .heat_map = {"layer", {{10}, {20}}, {{1, 2}, {NAN, 3}}}};
  const auto svg = draw_svg({figure});
  EXPECT_EQ(count(svg, "class=\"heat\""), 3u);
  EXPECT_NE(svg.find("The palest colour is 1, the darkest 3"), std::string::npos);
}

TEST(SvgPicture, HasTheCurvesTheLevelsAndEscapedNames) {
  auto figure = falling_loss();
  figure.curves[0].name = "a<b&\"c\"";
  figure.levels.push_back({"entropy", 6.5});
  const auto svg = draw_svg({figure, falling_loss()});
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_NE(svg.find("a&lt;b&amp;&quot;c&quot;"), svg.npos);
  EXPECT_NE(svg.find("entropy 6.5"), svg.npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), svg.npos);
  EXPECT_EQ(svg.find("nan"), svg.npos);
}

}  // namespace
}  // namespace athanor::picture_test
