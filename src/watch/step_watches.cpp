#include "watch/step_watches.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "record/run_folder.h"
#include "record/run_history.h"
#include "record/step_lines.h"

namespace athanor::inline watch {

StepWatches::StepWatches(TrainState& state, RunContext& at, bool shares_cores)
    : state_(state), at_(at), shares_cores_(shares_cores), refused_(state, at),
      integrity_(state, state.config.integrity.interval), slow_ranks_(state.model.mesh), experts_(state.config.model),
      frozen_(state, state.config.integrity.interval, integrity_.hasher()) {
  if (state.model.mesh.is_first() && state.position.step > 0)
    stuck_.take_history(last_step_numbers(RunFolder{state.config.train.run_dir}.metrics(), Spikes::kHistory),
                        state.position.step);
  if (state.model.mesh.has_device_groups() && slow_ranks_.compares())
    state.compute_clock = ComputeClock::of(state.model.mesh, state.model.device());
}

void StepWatches::begin_step() { integrity_.begin_step(state_.position.step + 1); }

StepFate StepWatches::fate_of(const StepReport& report, const Batch& batch, int64_t saved_step) {
  integrity_.after_update(report.step);
  const StepFate fate = refused_.fate_of(report, batch, saved_step);
  if (!fate.is_applied) return fate;
  note_slow_ranks(report);
  note_what_does_not_learn(report);
  return fate;
}

void StepWatches::tell_at_end() const {
  const std::string stuck = stuck_.at_end();
  if (state_.model.mesh.is_first() && !stuck.empty()) log::warn("{}", stuck);
}

double StepWatches::take_seconds() {
  const double seconds = refused_.seconds() + integrity_.seconds() + frozen_.seconds();
  return seconds - std::exchange(seconds_told_, seconds);
}

namespace {

// The seconds that this rank computed, without waits for others; NaN: not known. A device computes while the host
// continues, so that the host's times show nothing of it. Ranks that share cores measure when the kernel lets them run.
double computed_s(const StepReport& report, bool on_device, bool shares_cores) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (on_device) return report.device_s.value_or(kUnknown);
  if (shares_cores) return kUnknown;
  const double waited_s = report.forward_wait_s + report.backward_wait_s + report.optimizer_wait_s;
  return report.forward_s + report.backward_s + report.optimizer_s - waited_s;
}

}  // namespace

void StepWatches::note_slow_ranks(const StepReport& report) {
  const std::string line =
      slow_ranks_.took(report.step, computed_s(report, state_.model.mesh.has_device_groups(), shares_cores_));
  if (!line.empty()) log::warn_on_all("{}", line);
}

void StepWatches::note_what_does_not_learn(const StepReport& report) {
  const auto frozen = frozen_.after_update(report.step, report.lr);
  if (!state_.model.mesh.is_first()) return;
  const auto note = [&](const char* event, const std::string& text, nlohmann::ordered_json more) {
    log::warn("{}", text);
    more["text"] = text;
    EventLog(RunFolder{state_.config.train.run_dir}.events(), at_.attempt).add(event, report.step, std::move(more));
  };
  if (!frozen.empty())
    note("frozen", describe_frozen(frozen, report.step, state_.config.integrity.interval), {{"parameters", frozen}});
  const double loss = report.parts.mean_loss();
  const std::string stuck = stuck_.took(report.step, loss, report.grad_norm, report.parts.num_targets);
  if (!stuck.empty()) note("stuck", fmt::format("step {}: {}", report.step, stuck), nlohmann::ordered_json::object());
  const std::string experts = experts_.took(report.step, report.parts.routers);
  for (const UpdateFault& fault : updates_.took(report.step, report.updates))
    note("updates", fault.text, {{"kind", fault.kind}, {"parameters", fault.parameters}});
  if (!experts.empty()) note("experts", experts, nlohmann::ordered_json::object());
}

}  // namespace athanor::inline watch
