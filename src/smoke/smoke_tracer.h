#pragma once
// Records the trace of `athanor smoke` (smoke/smoke_trace.h) while its models train. It reads tensors and changes no
// bits.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ops/tensor.h"
#include "smoke/smoke_trace.h"
#include "train/train_step.h"

namespace athanor::inline smoke {

/// Records all tensors, or one of them with its values.
class SmokeTracer {
 public:
  /// @param only  the only tensor to record, with its values; nothing: all tensors, as hashes.
  explicit SmokeTracer(std::optional<TracedPlace> only = std::nullopt);
  ~SmokeTracer();

  /// Returns false if no tensor of this model is asked for.
  bool wants(const std::string& model) {
    models_.push_back(model);
    return !only_ || only_->model == model;
  }
  /// `is_enough` is asked about what a model's trace has after each step; true: no further step of it is needed.
  void stop_when(std::function<bool(const TracedModel& model)> is_enough) { is_enough_ = std::move(is_enough); }
  /// Returns true once further steps of the model would add nothing that is asked for.
  bool has_all() const { return has_enough_ || (only_ && last_step_ >= only_->step); }

  /// To be called in this order for each model: once, and then for each step. begin_model adds an observer to the
  /// state, records the parameters, and must be called before the first step.
  void begin_model(const std::string& name, TrainState& state);
  void add_input(const Batch& batch);
  void add_gradients(const TrainState& state);                         ///< after Step::compute_gradients
  void add_update(const TrainState& state, const StepReport& report);  ///< after the step

  /// Returns the trace with the facts of this build on `device`.
  /// @throws ConfigError if the only tensor was not met, with the nearest name.
  SmokeTrace take(at::Device device);

 private:
  class Watcher;
  void add(const std::string& phase, const std::string& name, const Tensor& tensor);
  void add_watched();

  std::optional<TracedPlace> only_;
  std::shared_ptr<Watcher> watcher_;
  std::function<bool(const TracedModel&)> is_enough_;
  SmokeTrace trace_;
  bool has_enough_ = false;
  int64_t step_ = 0, last_step_ = -1;
  size_t before_gradients_ = 0;      // where the loss belongs among the model's tensors
  std::vector<std::string> met_;     // "PHASE:NAME" of the only tensor's model and step
  std::vector<std::string> models_;  // those that wants was asked about
};

}  // namespace athanor::inline smoke
