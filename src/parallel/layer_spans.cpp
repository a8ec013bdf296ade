#include "parallel/layer_spans.h"

namespace athanor::inline parallel {
namespace {

constexpr std::string_view kModel = "model.";

// "layers.3.mlp"; empty for places that are no part of a model's computation.
std::string part_of(std::string_view place) {
  return place.starts_with(kModel) ? std::string(place.substr(kModel.size())) : "";
}

// A layer's output follows its feed-forward at once, so it is no part.
bool is_whole_layer(std::string_view part) {
  return part.starts_with("layers.") && part.find('.', sizeof("layers.")) == part.npos;
}

}  // namespace

void LayerSpans::add(const std::string& name, const char* category, int64_t end_ns) {
  if (!name.empty() && begin_ns_ != 0) log_->add({Span::Row::kTraining, name, category, begin_ns_, end_ns});
}

void LayerSpans::begin_action() {
  begin_ns_ = span_clock_ns();
  backward_of_.clear();
  last_forward_.clear();
}

void LayerSpans::end_action() {
  const bool ends_forward = last_forward_ == "norm";
  const auto phase = ends_forward ? Observation::Phase::kForward : Observation::Phase::kBackward;
  add(ends_forward ? "output and loss" : backward_of_, phase_name(phase), span_clock_ns());
  backward_of_.clear();
  begin_ns_ = 0;
}

void LayerSpans::observe(const Observation& observation) {
  if (!log_->is_on() || begin_ns_ == 0 || observation.microbatch == Observation::kAllMicrobatches) return;
  const std::string part = part_of(observation.place);
  const int64_t now = span_clock_ns();
  const bool backward = observation.phase == Observation::Phase::kBackward;
  const std::string name = backward ? backward_of_ : is_whole_layer(part) ? "" : part;
  add(name, phase_name(observation.phase), now);
  backward_of_ = backward && !part.empty() && !is_whole_layer(part) ? part + " backward" : "";
  last_forward_ = backward ? "" : part;
  begin_ns_ = now;
}

}  // namespace athanor::inline parallel
