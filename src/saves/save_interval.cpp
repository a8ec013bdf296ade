#include "saves/save_interval.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bounded_json.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::inline saves {
namespace {

using nlohmann::json;

// Llama 3 405B (arXiv 2407.21783, section 3.3.4): 419 unexpected interruptions in 54 days on 2,048 nodes of eight GPUs.
constexpr double kPublished_h = 54.0 * 24 * 2048 / 419;
constexpr int64_t kFewestFailures = 2;

struct Attempt {
  double first_s = 0, last_s = 0;
  bool failed = true;  // unless its last line reports another end
};

bool is_failure(int64_t code) {
  return code != exit_code::kComplete && code != exit_code::kStoppedAndSaved && code < exit_code::of_signal(0);
}

std::map<int64_t, Attempt> attempts_of(const std::filesystem::path& events) {
  std::map<int64_t, Attempt> attempts;
  if (!std::filesystem::is_regular_file(events)) return attempts;
  std::istringstream lines(read_file(events));
  for (std::string text; std::getline(lines, text);) {
    const json line = read_json(text);
    if (!line.is_object() || !line.contains("time") || !line["time"].is_number()) continue;
    if (!line.contains("attempt") || !line["attempt"].is_number_integer()) continue;
    Attempt& attempt = attempts[line["attempt"].get<int64_t>()];
    const double time_s = line["time"].get<double>();
    if (attempt.first_s == 0) attempt.first_s = time_s;
    attempt.last_s = time_s;
    if (line.value("event", "") == "end" && line.contains("exit_code") && line["exit_code"].is_number_integer())
      attempt.failed = is_failure(line["exit_code"].get<int64_t>());
  }
  return attempts;
}

}  // namespace

double best_interval_s(double cost_s, double mtbf_s) {
  if (cost_s >= 2 * mtbf_s) return mtbf_s;
  const double part = cost_s / (2 * mtbf_s);
  return std::sqrt(2 * cost_s * mtbf_s) * (1 + std::sqrt(part) / 3 + part / 9) - cost_s;
}

double expected_time(double interval_s, double cost_s, double restart_s, double mtbf_s) {
  return mtbf_s * std::exp(restart_s / mtbf_s) * std::expm1((interval_s + cost_s) / mtbf_s) / interval_s;
}

FailureRate find_failure_rate(double mtbf_hours, int64_t nodes, const std::filesystem::path& events) {
  const auto of_nodes = [&](double hours) { return hours * 3600 / static_cast<double>(nodes); };
  if (mtbf_hours > 0) return {of_nodes(mtbf_hours), fmt::format("checkpoint.mtbf_hours and {} node(s)", nodes)};
  double seconds = 0;
  int64_t failures = 0;
  for (const auto& [number, attempt] : attempts_of(events)) {
    seconds += attempt.last_s - attempt.first_s;
    failures += attempt.failed;
  }
  if (failures >= kFewestFailures && seconds > 0)
    return {seconds / static_cast<double>(failures),
            fmt::format("{} failures in {} of this run", failures, format_duration(seconds))};
  return {of_nodes(kPublished_h), fmt::format("a published figure of {:.0f} hours a node, and {} node(s); set "
                                              "checkpoint.mtbf_hours if you know it better",
                                              kPublished_h, nodes)};
}

void SaveInterval::step_took(double seconds, bool saving) {
  if (saving && num_plain_ > 0) {
    slower_s_ += seconds - step_s_;
  } else if (!saving) {
    // About the last twenty steps count.
    step_s_ += (seconds - step_s_) / static_cast<double>(std::min<int64_t>(++num_plain_, 20));
  }
}

std::string SaveInterval::saved(double stopped_s, double seconds) {
  const double cost_s = std::max({stopped_s, slower_s_, 1e-3});
  slower_s_ = 0;
  // While one is being written, no other can begin.
  interval_s_ = std::max(best_interval_s(cost_s, rate_.mtbf_s), 2 * seconds);
  if (told_s_ > 0 && std::abs(interval_s_ - told_s_) <= 0.2 * told_s_) return "";
  told_s_ = interval_s_;
  const double lost = 1 - 1 / expected_time(interval_s_, cost_s, restart_s_ + seconds, rate_.mtbf_s);
  return fmt::format(
      "checkpoints every {} from now on: one costs {:.2g} s and is on disk after {:.2g} s; the job is expected to fail "
      "every {} ({}); by Daly's formula {:.2g}% of the time is lost to both",
      format_duration(interval_s_), cost_s, seconds, format_duration(rate_.mtbf_s), rate_.from, 100 * lost);
}

bool SaveInterval::is_due(double since_s) const {
  constexpr double kAgain_s = 300;
  if (interval_s_ > 0) return since_s >= interval_s_;
  return has_begun_ ? since_s >= kAgain_s : num_plain_ > 0;
}

}  // namespace athanor::inline saves
