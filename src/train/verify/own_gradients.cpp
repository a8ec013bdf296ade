#include "train/verify/own_gradients.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "train/verify/parts.h"
#include "train/verify/replay/replay.h"

namespace athanor {
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

Comparison compare_part(const Replay& replay, const std::vector<float>& master, const std::string& name, int64_t step,
                        int64_t begin, int64_t end) {
  double off = 0, bound = 0, size = 0;
  for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
    const double expected = replay.master()[i], error = master[i] - expected;
    off += error * error, bound += replay.bound()[i] * replay.bound()[i], size += expected * expected;
  }
  const double whole = std::sqrt(std::max(size, 1e-300));
  return {kParametersQuantity, name, step, std::sqrt(off) / whole, std::sqrt(bound) / whole};
}

// Compares the masters after every step with those of the replay.
void compare_updates(const WholeTrace& run, const ParameterSpec& spec, Replay& replay, std::vector<Comparison>& all) {
  for (int64_t step = 1; step <= run.num_steps(); ++step) {
    const StepNumbers& numbers = run.step(step);
    replay.add_step({step, numbers.lr, numbers.grad_norm, run.values(step, "grad", spec.name),
                     run.values(step, "hessian", spec.name)});
    const auto& master = run.values(step, "master", spec.name);
    // A fault that is reported elsewhere: part of it is not held.
    if (master.size() != replay.master().size()) continue;
    for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
      all.push_back(compare_part(replay, master, name, step, begin, end));
    });
  }
}

// Reports what the replays take from the run or leave out.
void log_what_is_taken(size_t with_hessian, size_t not_replayed, size_t parameters) {
  if (with_hessian > 0)
    log::info(
        "{} of {} parameters have sophiag: their updates are computed from the Hessian that the run has, of whose "
        "second backward no gradients are recorded",
        with_hessian, parameters);
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
  size_t with_hessian = 0, not_replayed = 0;
  for (const auto& spec : inventory) {
    const auto replay = make_replay(small, spec, run.values(0, "master", spec.name));
    if (!replay) {
      ++not_replayed;
      continue;
    }
    with_hessian += run.values(run.num_steps(), "hessian", spec.name).empty() ? 0 : 1;
    compare_updates(run, spec, *replay, all);
  }
  log_what_is_taken(with_hessian, not_replayed, inventory.size());
  return all;
}

}  // namespace athanor
