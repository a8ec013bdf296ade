#include "metrics/step_lines.h"

#include <fmt/core.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"

namespace athanor::inline metrics {

StepLines::StepLines(int64_t interval, int64_t first_step, int64_t last_step)
    : interval_(interval), first_step_(first_step), last_step_(last_step),
      on_terminal_(::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {}

void StepLines::show(const StepMetrics& metrics) {
  if (on_terminal_) {
    log::set_status(moving_line(metrics, last_step_, seconds_since(start_)));
    return;
  }
  if (metrics.step == first_step_ + 1 || metrics.step == last_step_ || metrics.step % interval_ == 0) print(metrics);
}

void StepLines::end() {
  if (on_terminal_) log::set_status("");
}

// A terminal that no longer exists costs its lines, not the run.
void StepLines::print(const StepMetrics& metrics) {
  if (!printing_) return;
  try {
    fmt::print("{}\n", format_step_line(metrics));
    printing_ = std::fflush(stdout) == 0;
  } catch (const std::system_error&) {
    printing_ = false;
  }
  if (printing_) return;
  ::__fpurge(stdout);  // the end of the run would try once more to write it, and report a failure
  log::warn(
      "this run's output cannot be written any more (a terminal or pipe is gone); its steps stand in metrics.jsonl");
}

std::string moving_line(const StepMetrics& metrics, int64_t last_step, double elapsed_s) {
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  {} tokens/s  {} elapsed", metrics.step, last_step, metrics.loss,
                  format_thousands(metrics.tokens_per_second()), format_duration(elapsed_s));
  if (metrics.seconds_left) line += fmt::format(", {} left", format_duration(*metrics.seconds_left));
  return line;
}

}  // namespace athanor::inline metrics
