// The table of a progression (score_figures.h).

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "plot/score_figures.h"

namespace athanor::inline plot {
namespace {

constexpr const char* kNoScore = "–";

std::string score_text(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 4 : 2); }

// Characters, not bytes.
size_t shown_width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// A column of text, whose cells stand on the right.
struct TextColumn {
  std::vector<std::string> cells;

  size_t width() const {
    size_t widest = 0;
    for (const auto& cell : cells) widest = std::max(widest, shown_width(cell));
    return widest;
  }
};

TextColumn column_of(const RunScores& run, const ScoreColumn& column, size_t index) {
  TextColumn text{{printable(column.task), printable(column.metric), column.chance ? score_text(*column.chance) : ""}};
  std::optional<double> error;
  for (const auto& checkpoint : run.checkpoints) {
    const auto& score = checkpoint.scores[index];
    if (score && score->error) error = std::max(error.value_or(0), *score->error);
  }
  text.cells.push_back(error ? score_text(*error) : "");
  for (const auto& checkpoint : run.checkpoints) {
    const auto& score = checkpoint.scores[index];
    text.cells.push_back(score ? score_text(score->value) : kNoScore);
  }
  return text;
}

// Step and tokens of each checkpoint.
std::vector<TextColumn> first_columns(const RunScores& run) {
  TextColumn step{{"step", "", "", ""}}, tokens{{"tokens", "metric", "chance", "stderr up to"}};
  for (const auto& checkpoint : run.checkpoints) {
    step.cells.push_back(format_thousands(static_cast<double>(checkpoint.step)));
    tokens.cells.push_back(checkpoint.tokens < 0 ? kNoScore : format_thousands(static_cast<double>(checkpoint.tokens)));
  }
  return {step, tokens};
}

std::string text_of_columns(const std::vector<TextColumn>& columns) {
  std::string text;
  for (size_t row = 0; row < columns[0].cells.size(); ++row) {
    std::string line;
    for (const auto& column : columns) {
      const auto& cell = column.cells[row];
      line += (line.empty() ? "" : "  ") + std::string(column.width() - shown_width(cell), ' ') + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// As many columns as fit, then the others below.
std::string table_of(const RunScores& run, const std::vector<ScoreColumn>& columns, size_t most_columns) {
  const auto first = first_columns(run);
  const size_t first_width = first[0].width() + 2 + first[1].width();
  std::string text;
  std::vector<TextColumn> shown = first;
  size_t width = first_width;
  for (size_t i = 0; i < columns.size(); ++i) {
    TextColumn column = column_of(run, columns[i], i);
    if (most_columns > 0 && shown.size() > first.size() && width + 2 + column.width() > most_columns) {
      text += text_of_columns(shown) + "\n";
      shown = first;
      width = first_width;
    }
    width += 2 + column.width();
    shown.push_back(std::move(column));
  }
  return text + text_of_columns(shown);
}

}  // namespace

std::string score_table(const ScoreHistory& history, size_t most_columns) {
  std::string text;
  for (const auto& run : history.runs) {
    if (history.runs.size() > 1) text += (text.empty() ? "" : "\n") + printable(run.name) + "\n";
    text += run.checkpoints.empty() ? "no result of these tasks\n" : table_of(run, history.columns, most_columns);
  }
  return text;
}

}  // namespace athanor::inline plot
