#include "plot/terminal_picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/text.h"
#include "plot/figure_axes.h"
#include "plot/figure_notes.h"

namespace athanor::inline plot {
namespace {

constexpr int kLeastColumns = 30, kLeastRows = 8, kMostRows = 30;
// Some of the 256 colours: blue, orange, green, magenta, ochre, cyan, red, olive.
constexpr int kTones[] = {33, 208, 35, 170, 178, 37, 203, 106};
constexpr int kNoCurve = -1;

struct Cell {
  uint8_t dots = 0;       // bits of the code of a braille character
  const char* text = "";  // drawn instead of the dots, if not empty
  char letter = 0;        // drawn instead of both, if not 0
  int curve = kNoCurve;
};

// A canvas of cells, each of 2 × 4 dots with braille, else of one.
class Canvas {
 public:
  Canvas(int columns, int rows, const TerminalStyle& style)
      : columns_(columns), rows_(rows), style_(style), cells_(static_cast<size_t>(columns * rows)) {}

  int dot_columns() const { return columns_ * (style_.braille ? 2 : 1); }
  int dot_rows() const { return rows_ * (style_.braille ? 4 : 1); }
  Cell& at(int column, int row) { return cells_[static_cast<size_t>(row * columns_ + column)]; }

  // Sets the dot at (x, y), counted from the top left.
  void set_dot(int x, int y, int curve, char letter) {
    if (x < 0 || y < 0 || x >= dot_columns() || y >= dot_rows()) return;
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    Cell& cell = style_.braille ? at(x / 2, y / 4) : at(x, y);
    cell.curve = curve;
    if (style_.braille) {
      cell.dots |= kBits[y % 4][x % 2];
    } else {
      cell.letter = letter;
    }
  }

  void draw_line(int x, int y, int to_x, int to_y, int curve, char letter) {
    const int steps = std::max({std::abs(to_x - x), std::abs(to_y - y), 1});
    for (int i = 0; i <= steps; ++i) {
      const double share = static_cast<double>(i) / steps;
      set_dot(static_cast<int>(std::lround(x + share * (to_x - x))),
              static_cast<int>(std::lround(y + share * (to_y - y))), curve, letter);
    }
  }

  std::string row_text(int row) {
    std::string text;
    int colour = kNoCurve;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = at(column, row);
      if (style_.colours && cell.curve != colour) {
        if (colour != kNoCurve) text += "\033[0m";
        if (cell.curve != kNoCurve) text += fmt::format("\033[38;5;{}m", kTones[cell.curve % std::ssize(kTones)]);
        colour = cell.curve;
      }
      append(cell, text);
    }
    if (colour != kNoCurve) text += "\033[0m";
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

 private:
  static void append(const Cell& cell, std::string& text) {
    if (cell.letter != 0) {
      text += cell.letter;
    } else if (*cell.text != '\0') {
      text += cell.text;
    } else if (cell.dots != 0) {
      append_utf8(text, 0x2800u + cell.dots);
    } else {
      text += ' ';
    }
  }

  int columns_, rows_;
  TerminalStyle style_;
  std::vector<Cell> cells_;
};

class TerminalPicture {
 public:
  TerminalPicture(const Figure& figure, const TerminalStyle& style) : figure_(stacked_up(figure)), style_(style) {
    for (Curve& curve : figure_.curves) curve.faint.clear();
  }

  std::string draw() {
    const int columns = std::max(style_.columns, kLeastColumns) - 1;  // a full line would wrap on some terminals
    const auto around = static_cast<int>(figure_.curves.size() + figure_.levels.size()) + 5;
    const int rows = std::clamp(style_.rows - around, kLeastRows, kMostRows);
    x_ = x_axis_of({&figure_, 1}, figure_.x_axis, std::max(2, columns / 12));
    y_ = y_axis_of(figure_, std::max(2, rows / 3));
    for (const auto& tick : y_.ticks) label_width_ = std::max(label_width_, static_cast<int>(tick.label.size()));
    Canvas canvas(std::max(10, columns - label_width_ - 2), rows, style_);
    draw_levels(canvas, rows);
    for (const Curve& curve : figure_.curves) draw_curve(canvas, curve);
    std::string text = printable(figure_.heading()) + "\n" + legend();
    for (int row = 0; row < rows; ++row) text += frame(row, rows) + canvas.row_text(row) + "\n";
    text += x_axis(canvas.dot_columns() / (style_.braille ? 2 : 1));
    if (const std::string note = smoothing_note(figure_); !note.empty()) text += note + " (--smooth)\n";
    return text;
  }

 private:
  static int row_of(double share, int rows) { return static_cast<int>(std::lround((1 - share) * (rows - 1))); }
  static int column_of(double share, int columns) { return static_cast<int>(std::lround(share * (columns - 1))); }

  // Characters of a curve without braille: one curve needs no name.
  char line_letter(int curve) const {
    return style_.braille || figure_.curves.size() == 1 ? '*' : static_cast<char>('a' + curve % 26);
  }
  char dot_letter(int curve) const { return figure_.curves.size() == 1 ? 'o' : static_cast<char>('A' + curve % 26); }

  void draw_levels(Canvas& canvas, int rows) const {
    const int columns = canvas.dot_columns() / (style_.braille ? 2 : 1);
    for (const auto& level : figure_.levels) {
      const int row = row_of(y_.share(level.y), rows);
      for (int column = 0; column < columns; ++column) canvas.at(column, row).text = style_.braille ? "╌" : "-";
    }
  }

  void draw_curve(Canvas& canvas, const Curve& curve) const {
    const auto index = static_cast<int>(curve.ink);
    const auto x = [&](const Point& point) {
      return column_of(x_.share(point.at(figure_.x_axis)), canvas.dot_columns());
    };
    const auto y = [&](const Point& point) { return row_of(y_.share(point.y), canvas.dot_rows()); };
    for (size_t i = 0; i < curve.line.size(); ++i) {
      const Point &from = curve.line[i == 0 ? 0 : i - 1], &to = curve.line[i];
      canvas.draw_line(x(from), y(from), x(to), y(to), index, line_letter(index));
    }
    for (const auto& point : curve.dots) {
      const int per_x = style_.braille ? 2 : 1, per_y = style_.braille ? 4 : 1;
      Cell& cell = canvas.at(x(point) / per_x, y(point) / per_y);
      cell.curve = index;
      cell.text = "●";
      if (!style_.braille) cell.letter = dot_letter(index);
    }
  }

  std::string coloured(const std::string& text, int curve) const {
    return style_.colours ? fmt::format("\033[38;5;{}m{}\033[0m", kTones[curve % std::ssize(kTones)], text) : text;
  }

  std::string legend() const {
    std::string text;
    for (const Curve& curve : figure_.curves) {
      const auto i = static_cast<int>(curve.ink);
      const std::string line = style_.braille ? "━━" : std::string(2, line_letter(i));
      const std::string dot = style_.braille ? "●" : std::string(1, dot_letter(i));
      text += coloured(line, i) + " " + printable(curve.name);
      const bool fits = curve.name.size() + curve.dots_name.size() + 8 < static_cast<size_t>(style_.columns);
      if (!curve.dots.empty()) text += (fits ? "   " : "\n ") + coloured(dot, i) + " " + printable(curve.dots_name);
      text += "\n";
    }
    for (const auto& level : figure_.levels)
      text += fmt::format("{} {} {:g}\n", style_.braille ? "╌╌" : "--", printable(level.name), level.y);
    return text;
  }

  // Returns the label and the line of the vertical axis in a row.
  std::string frame(int row, int rows) const {
    for (const auto& tick : y_.ticks) {
      if (row_of(y_.share(tick.value), rows) == row)
        return fmt::format("{:>{}} {}", tick.label, label_width_, style_.braille ? "┤" : "+");
    }
    return std::string(static_cast<size_t>(label_width_) + 1, ' ') + (style_.braille ? "│" : "|");
  }

  std::string x_axis(int columns) const {
    const auto left = static_cast<size_t>(label_width_) + 1;
    std::string line = std::string(left, ' ') + (style_.braille ? "└" : "+");
    std::string labels(left + 1 + static_cast<size_t>(columns), ' ');
    std::vector<bool> ticked(static_cast<size_t>(columns));
    size_t free_from = 0;
    for (const auto& tick : x_.ticks) {
      const auto column = static_cast<size_t>(column_of(x_.share(tick.value), columns));
      const size_t half = tick.label.size() / 2, centre = left + 1 + column;
      const size_t begin = std::min(centre > half ? centre - half : 0, labels.size() - tick.label.size());
      ticked[column] = true;
      if (begin < free_from) continue;
      labels.replace(begin, tick.label.size(), tick.label);
      free_from = begin + tick.label.size() + 1;
    }
    for (const bool tick : ticked) line += style_.braille ? (tick ? "┬" : "─") : (tick ? "+" : "-");
    while (labels.ends_with(' ')) labels.pop_back();
    const size_t middle =
        left + 1 + (static_cast<size_t>(columns) - std::min(static_cast<size_t>(columns), x_.label.size())) / 2;
    return line + "\n" + labels + "\n" + std::string(middle, ' ') + x_.label + "\n";
  }

  Figure figure_;
  const TerminalStyle& style_;
  TickedAxis x_, y_;
  int label_width_ = 0;
};

}  // namespace

std::string draw_on_terminal(const Figure& figure, const TerminalStyle& style) {
  return TerminalPicture(figure, style).draw();
}

}  // namespace athanor::inline plot
