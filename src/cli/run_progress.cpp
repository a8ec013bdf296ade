#include "cli/run_progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/terminal_style.h"
#include "plot/run_figures.h"
#include "record/step_lines.h"
#include "report/run_events.h"
#include "report/run_settings.h"

namespace athanor::inline cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kEvents = 5, kMostLayers = 64;
constexpr int kFewestRows = 10, kMostRows = 24;  // which the curve takes

double number_in(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : NAN;
}

std::string last_step(const Json& line, const std::string& steps) {
  const auto thousands = [&](const char* name) { return format_thousands(number_in(line, name)); };
  std::string text = fmt::format("step {}{}", thousands("step"), steps.empty() ? "" : " of " + steps);
  const auto add = [&](const char* name, const std::string& shown) {
    if (std::isfinite(number_in(line, name))) text += "   " + shown;
  };
  add("loss", fmt::format("loss {:.4f}", number_in(line, "loss")));
  add("grad_norm", fmt::format("gradient norm {:.3g}", number_in(line, "grad_norm")));
  add("lr", fmt::format("lr {:.3g}", number_in(line, "lr")));
  add("tps", thousands("tps") + " tokens/s");
  add("mfu", fmt::format("MFU {:.1f}%", 100 * number_in(line, "mfu")));
  add("seconds_left", "left " + format_duration(number_in(line, "seconds_left")));
  return text + "\n";
}

// A bar for each layer, as high as the load of its busiest expert: from 1, which is balanced, to 4 times the mean.
std::string loads_text(const Json& line, bool unicode) {
  const auto loads = line.find("expert_load_max_over_mean");
  if (loads == line.end() || !loads->is_array() || loads->empty()) return "";
  static const std::vector<std::string> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string bars;
  double worst = 0;
  for (size_t layer = 0; layer < loads->size(); ++layer) {
    const Json& load = (*loads)[layer];
    if (!load.is_number()) continue;
    worst = std::max(worst, load.get<double>());
    const double share = std::clamp((load.get<double>() - 1) / 3, 0.0, 1.0);
    if (layer < kMostLayers)
      bars += unicode ? kBars[static_cast<size_t>(std::lround(share * 7))] : std::to_string(std::lround(share * 9));
  }
  return fmt::format("busiest expert over the mean, by layer: {}{} ({} is 1, {} is 4 or more)   at most {:.3g}\n", bars,
                     loads->size() > kMostLayers ? "…" : "", unicode ? kBars.front() : "0",
                     unicode ? kBars.back() : "9", worst);
}

std::string events_text(const fs::path& file, int columns) {
  std::vector<RunEvent> events = read_run_events(file);
  const size_t first = events.size() > kEvents ? events.size() - kEvents : 0;
  std::string text;
  for (size_t i = first; i < events.size(); ++i) {
    std::string line = printable(fmt::format("step {}: {}{}{}", events[i].step, events[i].kind,
                                             events[i].text.empty() ? "" : ", ", events[i].text));
    const auto most = static_cast<size_t>(std::max(20, columns - 1));
    if (line.size() > most) {
      size_t end = most - 3;
      while (end > 0 && (line[end] & 0xC0) == 0x80) --end;  // not within a character
      line = line.substr(0, end) + "…";
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string RunProgress::read(ptrdiff_t rows_above) const {
  TerminalStyle style = style_of_terminal(1);
  const Json line = last_step_line(run_ / "metrics.jsonl");
  if (line.empty()) return "";
  const std::string steps = setting(read_run_settings(run_ / "config.toml"), "train.steps");
  const bool is_number = !steps.empty() && steps.find_first_not_of("0123456789") == steps.npos && steps.size() < 16;
  std::string text = "\n" + last_step(line, is_number ? format_thousands(std::stod(steps)) : "") +
                     loads_text(line, style.braille) + events_text(run_ / "events.jsonl", style.columns);
  const auto rows = static_cast<int>(rows_above + std::ranges::count(text, '\n'));
  style.rows = std::clamp(style.rows - rows - 2, kFewestRows, kMostRows);
  for (const Figure& figure : make_run_figures({.runs = {run_.string()}}))
    text += "\n" + draw_on_terminal(figure, style);
  return text;
}

std::string RunProgress::text(ptrdiff_t rows_above) {
  std::error_code missing;
  const uintmax_t size = fs::file_size(run_ / "metrics.jsonl", missing);
  if (missing) return "";
  const auto now = Clock::now();
  if (size == size_ || now < next_read_) return last_;
  size_ = size;
  try {
    last_ = read(rows_above);
  } catch (const Error&) {  // no finite loss yet, or a file that is being replaced: the next call sees it
  }
  next_read_ = Clock::now() + 9 * (Clock::now() - now);
  return last_;
}

}  // namespace athanor::inline cli
