#include "watch/expert_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/text.h"

namespace athanor::inline watch {
namespace {

constexpr double kDeadShare = 0.01, kOverload = 4, kLeastOverload = 2, kAlmostAll = 0.9;
constexpr size_t kMostNamed = 8;

template <class Experts>
std::string names_of(const Experts& experts) {
  std::vector<std::string> names;
  for (const auto& [layer, expert] : experts) names.push_back(fmt::format("{} of model.layers.{}", expert, layer));
  return join_first(names, kMostNamed);
}

}  // namespace

std::string ExpertWatch::took(int64_t step, const RouterCounts& counts) {
  if (!counts.defined() || model_.num_experts_per_tok == model_.num_experts) return "";
  taken_ = taken_.defined() ? taken_ + counts.taken : counts.taken;
  if (++steps_ < kSteps) return "";
  const int64_t least = taken_.sum(1).min().item<int64_t>();  // layers may drop choices
  return least < kChoices * model_.num_experts ? "" : compare(step);
}

std::string ExpertWatch::compare(int64_t step) {
  const int64_t first_step = step - std::exchange(steps_, 0) + 1;
  const Tensor taken = std::exchange(taken_, {}).contiguous();
  const auto num_experts = static_cast<double>(model_.num_experts);
  const double overload = std::max(
      kLeastOverload, std::min(kOverload, kAlmostAll * num_experts / static_cast<double>(model_.num_experts_per_tok)));
  std::vector<Expert> dead, overloaded;
  int64_t row = 0;
  for (int64_t layer = 0; layer < model_.num_hidden_layers; ++layer) {
    if (!model_.is_sparse_layer(layer)) continue;
    const Tensor loads = taken[row++];
    const double mean = loads.sum().item<double>() / num_experts;
    const std::span all(loads.const_data_ptr<int64_t>(), static_cast<size_t>(model_.num_experts));
    for (int64_t expert = 0; expert < model_.num_experts; ++expert) {
      const auto load = static_cast<double>(all[static_cast<size_t>(expert)]);
      if (load < kDeadShare * mean) dead.emplace_back(layer, expert);
      if (load > overload * mean) overloaded.emplace_back(layer, expert);
    }
  }
  const bool had_any = !dead_.empty() || !overloaded_.empty();
  const bool is_known = std::ranges::includes(dead_, dead) && std::ranges::includes(overloaded_, overloaded);
  dead_ = dead;
  overloaded_ = overloaded;
  if (dead.empty() && overloaded.empty())
    return had_any ? fmt::format("steps {} to {}: no expert is dead or overloaded any more", first_step, step) : "";
  if (is_known) return "";
  std::vector<std::string> parts;
  if (!dead.empty())
    parts.push_back(fmt::format("dead experts (less than {:.0f}% of the mean of their layer): {}", 100 * kDeadShare,
                                names_of(dead)));
  if (!overloaded.empty())
    parts.push_back(fmt::format("overloaded experts (more than {:.1f} times the mean of their layer): {}", overload,
                                names_of(overloaded)));
  return fmt::format("steps {} to {}: {}", first_step, step, join(parts, "; "));
}

}  // namespace athanor::inline watch
