#include "optim/adamw.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/text.h"
#include "kernels/adamw.h"
#include "ops/flat_memory.h"

namespace athanor {

AdamW::AdamW(const OptimizerConfig& config, const ParameterStore& parameters)
    : config_(config), parameters_(parameters), exp_avg_(ops::flat_zeros(parameters.state_size(), at::kFloat)),
      exp_avg_sq_(ops::flat_zeros(parameters.state_size(), at::kFloat)) {
  for (const auto& entry : parameters.table()) {
    const bool decayed = std::ranges::none_of(
        config.no_weight_decay, [&](const std::string& pattern) { return matches_wildcard(pattern, entry.name); });
    if (segments_.empty() || segments_.back().decayed != decayed) segments_.push_back({{entry.flat_begin, 0}, decayed});
  }
  // Each runs up to the next, over the padding between them: zeros there stay zeros.
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].range.end = i + 1 < segments_.size() ? segments_[i + 1].range.begin : parameters.flat_size();
  }
  set_fresh_since({});
}

void AdamW::set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter) {
  ages_ = {{{0, parameters_.flat_size()}, 0}};
  for (const auto& entry : parameters_.table()) {
    const auto found = step_of_parameter.find(entry.name);
    const int64_t since = found == step_of_parameter.end() ? 0 : found->second;
    if (since == ages_.back().since) continue;
    ages_.back().range.end = entry.flat_begin;
    ages_.push_back({{entry.flat_begin, parameters_.flat_size()}, since});
  }
}

int64_t AdamW::step(int64_t step, double lr, double grad_scale, FlatRange range) {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1];
  kernels::AdamwStep rule{};
  rule.lr = static_cast<float>(lr);
  rule.beta1 = beta1;
  rule.beta2 = beta2;
  rule.eps = static_cast<float>(config_.eps);
  rule.grad_scale = static_cast<float>(grad_scale);
  int64_t changed = 0;
  for (const Segment& segment : segments_) {
    rule.weight_decay = segment.decayed ? static_cast<float>(config_.weight_decay) : 0.0f;
    for (const Age& age : ages_) {
      const FlatRange common = intersect(intersect(range, segment.range), age.range);
      if (common.size() <= 0) continue;
      ATHANOR_ASSERT(step > age.since);
      const auto updates = static_cast<double>(step - age.since);
      rule.bias_correction1 = static_cast<float>(1 - std::pow(beta1, updates));
      rule.bias_correction2 = static_cast<float>(1 - std::pow(beta2, updates));
      parameters_.for_each_owned(common,
                                 [&](FlatRange owned, int64_t state) { changed += update(rule, owned, state); });
    }
  }
  return changed;
}

int64_t AdamW::update(const kernels::AdamwStep& rule, FlatRange range, int64_t state) const {
  auto *m = exp_avg_.data_ptr<float>() + state, *v = exp_avg_sq_.data_ptr<float>() + state,
       *grad = parameters_.grad().data_ptr<float>() + range.begin;
  const bool split = parameters_.master_low().defined();
  auto* master = split ? nullptr : ops::pointer<float>(parameters_.compute()) + range.begin;
  auto* weight = split ? ops::pointer<kernels::Bf16>(parameters_.compute()) + range.begin : nullptr;
  auto* low = split ? ops::pointer<uint16_t>(parameters_.master_low()) + state : nullptr;
  std::atomic<int64_t> changed{0};
  ops::for_rows(range.size(), 1, [&](int64_t at, int64_t end) {
    changed += split ? kernels::adamw(rule, weight + at, low + at, m + at, v + at, grad + at, end - at)
                     : kernels::adamw(rule, master + at, m + at, v + at, grad + at, end - at);
  });
  return changed;
}

}  // namespace athanor
