#include "optim/adamw.h"

#include <algorithm>
#include <atomic>

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
}

int64_t AdamW::step(int64_t step, double lr, double grad_scale, FlatRange range) {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1], count = static_cast<double>(step);
  kernels::AdamwStep rule{};
  rule.lr = static_cast<float>(lr);
  rule.beta1 = beta1;
  rule.beta2 = beta2;
  rule.eps = static_cast<float>(config_.eps);
  rule.bias_correction1 = static_cast<float>(1 - std::pow(beta1, count));
  rule.bias_correction2 = static_cast<float>(1 - std::pow(beta2, count));
  rule.grad_scale = static_cast<float>(grad_scale);
  int64_t changed = 0;
  for (const Segment& segment : segments_) {
    rule.weight_decay = segment.decayed ? static_cast<float>(config_.weight_decay) : 0.0f;
    parameters_.for_each_owned(intersect(range, segment.range),
                               [&](FlatRange owned, int64_t state) { changed += update(rule, owned, state); });
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
