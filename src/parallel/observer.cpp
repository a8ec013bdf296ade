#include "parallel/observer.h"

#include <algorithm>

namespace athanor::inline parallel {

const char* phase_name(Observation::Phase phase) {
  switch (phase) {
    case Observation::Phase::kForward: return "forward";
    case Observation::Phase::kRecompute: return "recompute";
    case Observation::Phase::kBackward: return "backward";
    case Observation::Phase::kReduce: return "reduce";
    case Observation::Phase::kReduced: return "reduced";
    case Observation::Phase::kAddedOverReplicas: return "added over replicas";
  }
  return "";
}

void Observers::begin_gradients() const {
  if (empty()) return;
  for (const auto& observer : observers_) observer->begin_gradients();
}

void Observers::end_gradients() const {
  if (empty()) return;
  for (const auto& observer : observers_) observer->end_gradients();
}

void Observers::tell(const Observation& observation) const {
  const at::NoGradGuard no_grad;
  for (const auto& observer : observers_) observer->observe(observation);
}

bool Observers::want_attention_logits() const {
  return std::ranges::any_of(observers_, [](const auto& observer) { return observer->wants_attention_logits(); });
}

void Observers::tell_attention_logits(const std::string& place, int microbatch, const Tensor& largest) const {
  const at::NoGradGuard no_grad;
  for (const auto& observer : observers_) {
    if (observer->wants_attention_logits())
      observer->observe({place, Observation::Phase::kForward, microbatch, largest});
  }
}

void Watch::tell(const std::string& place, Phase phase, const Tensor& x) const {
  // The observer gets a tensor with a separate version counter: autograd does not see what is written into it, and
  // would refuse that for some views.
  observers_->tell({place, phase, microbatch_, x.variable_data(), first_sequence_});
}

void Watch::tell_gradient(const std::string& place, const Tensor& x) const {
  if (!x.requires_grad()) return;
  x.register_hook(
      [observers = observers_, microbatch = microbatch_, first = first_sequence_, &place](const Tensor& gradient) {
        observers->tell({place, Phase::kBackward, microbatch, gradient.detach(), first});
      });
}

}  // namespace athanor::inline parallel
