// Writes, reads and compares golden files of `athanor smoke`.

#include <bit>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "train/smoke.h"

namespace athanor {
namespace {

using nlohmann::json;

std::string bits_of(double value) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(value)); }

double from_bits(const json& text) {
  return std::bit_cast<double>(static_cast<uint64_t>(std::stoull(text.get<std::string>(), nullptr, 16)));
}

std::string difference(const SmokeRun& run, const json& golden) {
  const json& steps = golden.at("steps");
  if (steps.size() != run.steps.size())
    return fmt::format("{}: {} steps, the golden file has {}", run.model, run.steps.size(), steps.size());
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const SmokeStep expected{from_bits(steps[i].at("loss_bits")), from_bits(steps[i].at("grad_norm_bits"))};
    if (run.steps[i] == expected) continue;
    return fmt::format(
        "{}: step {} is the first that differs: loss {:.17g}, golden {:.17g}; gradient norm {:.17g}, golden {:.17g}",
        run.model, i + 1, run.steps[i].loss, expected.loss, run.steps[i].grad_norm, expected.grad_norm);
  }
  return "";
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

std::vector<std::string> compare_with_golden(const std::vector<SmokeRun>& runs, const std::string& golden,
                                             const std::string& name) try {
  const json root = json::parse(golden);
  std::vector<std::string> lines;
  for (const auto& run : runs) {
    const std::string line = difference(run, root.at("models").at(run.model));
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
} catch (const std::exception& error) {
  fail<DataError>("{} is not a golden file ({}); write it again with athanor smoke --update", name, error.what());
}

}  // namespace athanor
