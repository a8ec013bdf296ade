// Writes, reads and compares golden files of `athanor smoke`.

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "smoke/smoke.h"

namespace athanor::inline smoke {
namespace {

using nlohmann::json;

std::string bits_of(double value) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(value)); }

double from_bits(const json& text) {
  return std::bit_cast<double>(static_cast<uint64_t>(std::stoull(text.get<std::string>(), nullptr, 16)));
}

std::vector<SmokeStep> steps_of(const json& model) {
  std::vector<SmokeStep> steps;
  for (const json& step : model.at("steps"))
    steps.push_back({from_bits(step.at("loss_bits")), from_bits(step.at("grad_norm_bits"))});
  return steps;
}

}  // namespace

std::string golden_text(const std::vector<SmokeRun>& runs, const std::string& kind) {
  nlohmann::ordered_json root = {{"format", "athanor-smoke"}, {"kind", kind}};
  for (const auto& run : runs) {
    auto steps = nlohmann::ordered_json::array();
    for (const auto& step : run.steps) {
      steps.push_back({{"loss", step.loss},
                       {"grad_norm", step.grad_norm},
                       {"loss_bits", bits_of(step.loss)},
                       {"grad_norm_bits", bits_of(step.grad_norm)}});
    }
    root["models"][run.model]["steps"] = steps;
  }
  return root.dump(1) + "\n";
}

std::vector<SmokeRun> read_golden(const std::string& golden, const std::string& name) try {
  const auto root = read_ordered_json(golden);
  std::vector<SmokeRun> runs;
  for (const auto& [model, steps] : root.at("models").items()) runs.push_back({model, steps_of(json(steps)), {}});
  return runs;
} catch (const std::exception& error) {
  fail<DataError>("{} is not a golden file ({}); write it again with athanor smoke --update", name, error.what());
}

std::string difference_of(const SmokeRun& run, const SmokeRun& other, const std::string& here,
                          const std::string& there) {
  if (other.steps.size() != run.steps.size())
    return fmt::format("{}: {} steps{}, {}{}", run.model, run.steps.size(), here, other.steps.size(), there);
  const auto [mine, its] = std::ranges::mismatch(run.steps, other.steps);
  if (mine == run.steps.end()) return "";
  return fmt::format(
      "{0}: step {1} is the first that differs: loss {2:.17g}{6}, {3:.17g}{7}; gradient norm {4:.17g}{6}, {5:.17g}{7}",
      run.model, mine - run.steps.begin() + 1, mine->loss, its->loss, mine->grad_norm, its->grad_norm, here, there);
}

std::vector<std::string> compare_with_golden(const std::vector<SmokeRun>& runs, const std::string& golden,
                                             const std::string& name) {
  const auto expected = read_golden(golden, name);
  std::vector<std::string> lines;
  for (const auto& run : runs) {
    const auto found = std::ranges::find(expected, run.model, &SmokeRun::model);
    ATHANOR_CHECK_DATA(found != expected.end(),
                       "{} is not a golden file (it has no model {}); write it again with athanor smoke --update", name,
                       run.model);
    const std::string line = difference_of(run, *found, "", " in the golden file");
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace athanor::inline smoke
