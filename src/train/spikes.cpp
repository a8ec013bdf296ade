#include "train/spikes.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "base/bounded_json.h"
#include "base/text.h"

namespace athanor {
namespace {

constexpr double kDistances = 5, kLeastOfLoss = 1.05, kLeastOfNorm = 2;
constexpr std::streamoff kMostBytes = std::streamoff{16} << 20;  // read at the end of metrics.jsonl

struct Usual {
  double median, high;  // 95 of 100 are not above it
};

Usual usual_of(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return {sorted[sorted.size() / 2], sorted[sorted.size() * 95 / 100]};
}

double limit_of(const std::deque<double>& values, double least) {
  if (values.size() < Spikes::kLeast) return std::numeric_limits<double>::infinity();
  const auto [median, high] = usual_of(values);
  return std::max(median + kDistances * (high - median), least * median);
}

void take(std::deque<double>& values, double value) {
  values.push_back(value);
  if (values.size() > Spikes::kWindow) values.pop_front();
}

struct Numbers {
  int64_t step;
  double loss, grad_norm;
};

// The numbers of a line of metrics.jsonl; nothing if they are not there, or not finite.
std::optional<Numbers> numbers_of(const std::string& line) {
  const auto read = read_json(line);
  for (const char* name : {"step", "loss", "grad_norm"})
    if (!read.is_object() || !read.contains(name) || !read[name].is_number()) return std::nullopt;
  return Numbers{read["step"], read["loss"], read["grad_norm"]};
}

std::string beyond(const char* what, double value, double limit, const std::deque<double>& values) {
  if (!(value > limit)) return "";
  const auto [median, high] = usual_of(values);
  return fmt::format(
      "the {} is {:.4g}, above {:.4g}; the median of the last {} steps is {:.4g}, and 95% are below {:.4g}", what,
      value, limit, values.size(), median, high);
}

}  // namespace

StepLimits Spikes::limits() const { return {limit_of(losses_, kLeastOfLoss), limit_of(norms_, kLeastOfNorm)}; }

void Spikes::add(double loss, double grad_norm) {
  take(losses_, loss);
  take(norms_, grad_norm);
}

std::string Spikes::describe(double loss, double grad_norm) const {
  const StepLimits limit = limits();
  const std::string of_loss = beyond("loss", loss, limit.loss, losses_);
  const std::string of_norm = beyond("gradient norm", grad_norm, limit.grad_norm, norms_);
  return of_loss + (of_loss.empty() || of_norm.empty() ? "" : "; ") + of_norm;
}

Spikes spikes_of_history(const std::string& metrics_lines, int64_t step) {
  Spikes spikes;
  std::istringstream lines(metrics_lines);
  for (std::string line; std::getline(lines, line);) {
    const auto read = numbers_of(line);
    if (read && read->step <= step && spikes.describe(read->loss, read->grad_norm).empty())
      spikes.add(read->loss, read->grad_norm);
  }
  return spikes;
}

std::string last_metrics_lines(const std::filesystem::path& metrics) {
  std::ifstream file(metrics, std::ios::binary);
  if (!file) return "";
  file.seekg(0, std::ios::end);
  const std::streamoff begin = std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kMostBytes);
  file.seekg(begin);
  std::deque<std::string> last;
  std::string line;
  if (begin > 0) std::getline(file, line);  // a part of one
  while (std::getline(file, line)) {
    const auto read = numbers_of(line);
    if (!read) continue;
    last.push_back(nlohmann::json{{"step", read->step}, {"loss", read->loss}, {"grad_norm", read->grad_norm}}.dump());
    if (last.size() > 2 * Spikes::kWindow) last.pop_front();
  }
  return join(std::vector<std::string>(last.begin(), last.end()), "\n");
}

}  // namespace athanor
