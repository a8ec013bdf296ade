#include "base/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"

namespace athanor {
namespace {

constexpr int kBarWidth = 24;
constexpr double kTerminalInterval_s = 0.1, kFileInterval_s = 10.0;

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

ProgressBar::ProgressBar(std::string label, uint64_t total, std::string unit, double after_s)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), after_s_(after_s),
      on_terminal_(::isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()), last_shown_(start_) {}

ProgressBar::~ProgressBar() { finish(); }

void ProgressBar::add(uint64_t amount) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  done_ += amount;
  const auto now = std::chrono::steady_clock::now();
  if (seconds_between(last_shown_, now) < (on_terminal_ ? kTerminalInterval_s : kFileInterval_s)) return;
  if (seconds_between(start_, now) < after_s_) return;
  last_shown_ = now;
  show(false);
}

void ProgressBar::skip(uint64_t amount) {
  const std::lock_guard lock(mutex_);
  done_ += amount;
  skipped_ += amount;
}

void ProgressBar::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (on_terminal_ && seconds_between(start_, std::chrono::steady_clock::now()) >= after_s_) show(true);
}

std::string ProgressBar::render(double elapsed_s) const {
  const auto amount = [&](double value) { return unit_ == "B" ? format_bytes(value) : format_thousands(value); };
  const double rate = elapsed_s > 0 ? static_cast<double>(done_ - skipped_) / elapsed_s : 0;
  // The size of a pipe is not known, and nothing is a share of it.
  if (total_ == 0) return fmt::format("{} {}  {}/s", label_, amount(static_cast<double>(done_)), amount(rate));
  const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const auto filled = static_cast<size_t>(share * kBarWidth);
  std::string line = fmt::format("{} [{}{}] {:3.0f}%  {}{}  {}/s", label_, std::string(filled, '#'),
                                 std::string(kBarWidth - filled, '.'), 100 * share, amount(static_cast<double>(done_)),
                                 unit_ == "B" ? "" : " " + unit_, amount(rate));
  if (rate > 0 && done_ < total_) line += "  " + format_duration(static_cast<double>(total_ - done_) / rate) + " left";
  return line;
}

void ProgressBar::show(bool last) {
  const std::string line = render(seconds_between(start_, std::chrono::steady_clock::now()));
  if (on_terminal_) {
    log::set_status(last ? "" : line);
    if (last) std::fprintf(stderr, "%s\n", line.c_str());
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

}  // namespace athanor
