#include "verify/own_gradients.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "verify/parts.h"
#include "verify/replay/replay.h"
#include "verify/second_backwards.h"

namespace athanor::inline verify {
namespace {

// Both compute exact squares and add them in double.
Comparison compare_norm(const RunConfig& small, const std::vector<ParameterSpec>& inventory, const WholeTrace& run,
                        int64_t step) {
  double sum = 0;
  for (const auto& spec : inventory) {
    const auto& grad = run.values(step, "grad", spec.name);
    sum += dot(grad.data(), grad.data(), static_cast<int64_t>(grad.size()));
  }
  const double norm = std::sqrt(sum), bound = 0x1p-52 * static_cast<double>(count_parameters(small.model));
  return {kNormQuantity, "gradient norm, by its own gradients", step,
          std::abs(run.step(step).grad_norm - norm) / std::max(norm, 1e-300), bound};
}

/// @param expected  returns what element i should be.
template <class Expected>
Comparison compare_part(const char* quantity, const std::vector<float>& values, Expected expected,
                        const std::string& name, int64_t step, int64_t begin, int64_t end) {
  double off = 0, bound = 0, size = 0;
  for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
    const Rounded right = expected(i);
    const double error = values[i] - right.value;
    off += error * error, bound += right.error * right.error, size += right.value * right.value;
  }
  const double whole = std::sqrt(std::max(size, 1e-300));
  return {quantity, name, step, std::sqrt(off) / whole, std::sqrt(bound) / whole};
}

// Compares the masters after every step, and Hessians, with those of the replay.
void compare_updates(const RunConfig& small, const WholeTrace& run, const ParameterSpec& spec, Replay& replay,
                     std::vector<Comparison>& all) {
  for (int64_t step = 1; step <= run.num_steps(); ++step) {
    const StepNumbers& numbers = run.step(step);
    replay.add_step({step, numbers.lr, numbers.grad_norm, run.values(step, kGradKind, spec.name),
                     run.values(step, kDrawnGradKind, spec.name), targets_in_step(small)});
    const auto compare = [&](const char* quantity, const char* kind, size_t size, auto expected) {
      const auto& values = run.values(step, kind, spec.name);
      if (values.size() != size) return;  // a fault that is reported elsewhere: part of it is not held
      for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
        all.push_back(compare_part(quantity, values, expected, name, step, begin, end));
      });
    };
    if (const auto hessian = replay.hessian(); !hessian.empty())
      compare(kHessianQuantity, "hessian", hessian.size(), [&](size_t i) { return hessian[i]; });
    compare(kParametersQuantity, "master", replay.master().size(), [&](size_t i) {
      return Rounded{replay.master()[i], replay.bound()[i]};
    });
  }
}

void log_what_is_left_out(size_t not_replayed, size_t parameters) {
  if (not_replayed > 0)
    log::info(
        "{} of {} parameters are queries and keys that optimizer.qk_clip may scale: their gradients are compared, and "
        "their updates are not",
        not_replayed, parameters);
}

}  // namespace

std::vector<Comparison> compare_with_own_gradients(const RunConfig& small, const WholeTrace& run) {
  const auto inventory = make_inventory(small.model);
  std::vector<Comparison> all;
  for (int64_t step = 1; step <= run.num_steps(); ++step) all.push_back(compare_norm(small, inventory, run, step));
  size_t not_replayed = 0;
  for (const auto& spec : inventory) {
    const auto replay = make_replay(small, spec, run.values(0, "master", spec.name));
    if (!replay) {
      ++not_replayed;
      continue;
    }
    compare_updates(small, run, spec, *replay, all);
  }
  log_what_is_left_out(not_replayed, inventory.size());
  return all;
}

}  // namespace athanor::inline verify
