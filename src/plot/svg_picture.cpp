#include "plot/svg_picture.h"

#include <fmt/core.h>

#include <algorithm>

#include "plot/figure_axes.h"
#include "plot/figure_notes.h"
#include "plot/svg_chart.h"
#include "plot/svg_parts.h"

namespace athanor::inline plot {
namespace {

constexpr ChartSize kWhole{760, 330}, kSmall{290, 190};
constexpr double kTextLeft = 14, kChartLeft = 52;  // the second is in line with the vertical axis of a chart
constexpr double kTitleRow = 24, kUnitRow = 16, kNameRow = 18, kNoteRow = 16;
constexpr size_t kMostInRow = 3, kBytesOfSmallTitle = 38;

// The part that is drawn, and where the next row begins.
struct Sheet {
  std::string body;
  double top = 0;

  void add_title(const std::string& title) {
    body += svg_text(kTextLeft, top + 20, title, "start", "class=\"title\" font-size=\"14\"");
    top += kTitleRow;
  }

  void add_pale_row(const std::string& text) {
    body += svg_text(kTextLeft, top + 12, text, "start", "class=\"small pale\"");
    top += kNoteRow;
  }

  void add_chart(const Figure& figure, double left, const ChartSize& size, const TickedAxis* x = nullptr) {
    body += fmt::format("<svg x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">\n{}</svg>\n", left, top, size.width,
                        size.height, draw_chart(figure, figure.x_axis, size, x));
  }

  void add_legend(const std::vector<Curve>& curves) {
    constexpr size_t kMostBytes = 62;  // more would reach the second column
    constexpr double kSecondColumn = 470;
    for (const Curve& curve : curves) {
      const double row = top + 10;
      body += svg_line(kChartLeft, row, kChartLeft + 22, row,
                       fmt::format("stroke=\"{}\" stroke-width=\"2.5\"{}", svg_ink(curve.ink), svg_dashes(curve.ink)));
      body += svg_text(kChartLeft + 28, row + 4, end_of_name(curve.name, (curve.dots.empty() ? 2 : 1) * kMostBytes));
      if (!curve.dots.empty()) {
        body += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3.2\" fill=\"{}\"/>\n", kSecondColumn, row,
                            svg_ink(curve.ink));
        body += svg_text(kSecondColumn + 10, row + 4, curve.dots_name);
      }
      top += kNameRow;
    }
  }
};

}  // namespace

std::string draw_svg(const std::vector<Figure>& figures) {
  Sheet sheet;
  for (const Figure& figure : figures) {
    sheet.add_title(figure.title);
    if (!figure.unit.empty()) sheet.add_pale_row(figure.unit);
    sheet.add_legend(figure.curves);
    sheet.add_chart(figure, 0, kWhole);
    sheet.top += kWhole.height;
    for (const std::string& note : notes_of(figure)) sheet.add_pale_row(note);
    sheet.top += kNoteRow / 2;
  }
  return svg_document(kWhole.width, sheet.top, sheet.body);
}

std::string draw_small_multiples(const std::vector<Figure>& figures, const std::string& title,
                                 const std::string& note) {
  // Four make a square.
  const size_t in_row = figures.size() == 4 ? 2 : std::min(figures.size(), kMostInRow);
  const TickedAxis x = x_axis_of(figures, figures[0].x_axis, 5);
  Sheet sheet;
  sheet.add_title(title);
  if (figures[0].curves.size() > 1) sheet.add_legend(figures[0].curves);
  for (size_t i = 0; i < figures.size(); ++i) {
    const double left = kSmall.width * static_cast<double>(i % in_row);
    sheet.body += svg_text(left + kChartLeft, sheet.top + 18, end_of_name(figures[i].title, kBytesOfSmallTitle),
                           "start", "class=\"title\"");
    sheet.body += svg_text(left + kChartLeft, sheet.top + 33, figures[i].unit, "start", "class=\"small pale\"");
    sheet.top += kTitleRow + kUnitRow;
    sheet.add_chart(figures[i], left, kSmall, &x);
    const bool ends_row = i % in_row == in_row - 1 || i == figures.size() - 1;
    sheet.top += ends_row ? kSmall.height : -kTitleRow - kUnitRow;
  }
  sheet.add_pale_row(note);
  // A figure alone leaves room for the title and the note.
  return svg_document(kSmall.width * static_cast<double>(std::max<size_t>(in_row, 2)), sheet.top + kNoteRow / 2,
                      sheet.body);
}

}  // namespace athanor::inline plot
