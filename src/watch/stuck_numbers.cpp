#include "watch/stuck_numbers.h"

#include <fmt/core.h>

#include <sstream>

#include "record/step_lines.h"

namespace athanor::inline watch {
namespace {

constexpr const char* kRemedy =
    "nothing is learnt from here on. If the weights have become too large, lower optimizer.lr and go back to a "
    "checkpoint of before; if they do not move, raise it";

}  // namespace

// Returns whether it is to be told.
bool StuckNumbers::Stuck::note(int64_t step, int64_t since_step, bool is_stuck) {
  if (!is_stuck) {
    since.reset();
    return false;
  }
  const bool is_new = step - last > kSteps;
  last = step;
  if (!since) since = since_step;
  return is_new;
}

std::string StuckNumbers::took(int64_t step, double loss, double grad_norm, int64_t num_targets) {
  same_ = last_step_ > 0 && loss == last_loss_ ? same_ + 1 : 0;
  last_loss_ = loss;
  last_step_ = step;
  const bool tells_gradient = gradient_.note(step, step, grad_norm == 0),
             tells_loss = loss_.note(step, step - same_, same_ >= kSteps);
  if (tells_gradient && num_targets == 0)
    return "no token of this step has a loss, so that its gradient is exactly zero: look at its data";
  if (tells_gradient && loss == 0)
    return "the loss and its gradient are exactly zero: the model predicts every token of these data, and nothing is "
           "left "
           "to learn from them";
  if (tells_gradient)
    return fmt::format(
        "the gradient is exactly zero at a loss of {:.4g}: the loss no longer depends on the weights, and {}", loss,
        kRemedy);
  if (tells_loss)
    return fmt::format("the loss was {} to the last bit in each of the last {} steps: {}", loss, same_ + 1, kRemedy);
  return "";
}

void StuckNumbers::take_history(const std::string& metrics_lines, int64_t last) {
  std::istringstream lines(metrics_lines);
  for (std::string line; std::getline(lines, line);) {
    const auto read = step_numbers_of(line);
    if (read && read->step <= last) took(read->step, read->loss, read->grad_norm, 1);
  }
}

std::string StuckNumbers::at_end() const {
  if (gradient_.since)
    return fmt::format(
        "the gradient has been exactly zero since step {}: the weights of the end learnt nothing from "
        "there on",
        *gradient_.since);
  if (loss_.since) return fmt::format("the loss has not changed in any bit since step {}", *loss_.since);
  return "";
}

}  // namespace athanor::inline watch
