#include "watch/refused_steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "config/training_stages.h"
#include "parallel/share.h"
#include "record/run_folder.h"
#include "record/run_history.h"
#include "record/step_lines.h"

namespace athanor::inline watch {
namespace {

// The sign of a NaN depends on the processor, and means nothing.
double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

std::string cause_of(const StepReport& report, const NumbersVerdict& verdict, const std::string& gradient,
                     int num_ranks) {
  const double loss = report.parts.mean_loss();
  std::string text = fmt::format("the loss is {} and the gradient norm {}; ", without_sign_of_nan(loss),
                                 without_sign_of_nan(report.grad_norm));
  if (verdict.origin) text += verdict.origin->text(num_ranks) + "; ";
  text +=
      gradient.empty() ? "every gradient is finite" : "the first gradient that is not finite is that of " + gradient;
  return verdict.reason.empty() ? text : text + "; " + verdict.reason;
}

std::string remedy_of(const NumbersVerdict& verdict, int64_t saved_step, const std::string& drawn) {
  if (verdict.fault == NumbersVerdict::Fault::kNode) return fmt::format("Run again without {}", verdict.node);
  if (verdict.came_up_once) return "Run again, and on another node if such a value comes up once more";
  return fmt::format("Lower optimizer.lr and {}, or look at the data of this step{}",
                     saved_step > 0 ? "resume from an earlier checkpoint" : "begin again",
                     drawn.empty() ? "" : " (" + drawn + ")");
}

// The steps of an earlier training phase may have had other losses. Collective.
void learn_from_metrics(TrainState& state) {
  const Mesh& mesh = state.model.mesh;
  const int64_t step = state.position.step;
  int64_t begin = 0;
  for (const TrainingStage& stage : training_stages(state.run_config))
    if (!stage.is_of_ramp && stage.begin <= step) begin = stage.begin;
  const std::string lines =
      mesh.is_first() ? last_step_numbers(RunFolder{state.config.train.run_dir}.metrics(), Spikes::kHistory) : "";
  Spikes learnt = spikes_of_history(broadcast_text(mesh.host_group(GroupKind::kWorld), lines), begin, step);
  learnt.continue_after(state.position.spikes);
  state.position.spikes = std::move(learnt);
}

}  // namespace

RefusedSteps::RefusedSteps(TrainState& state, RunContext& at) : state_(state), at_(at) {
  if (state.position.step > 0 && state.position.spikes.is_empty()) learn_from_metrics(state);
  if (state.has_graphs) return;  // a step that is observed is not launched as one
  watch_ = std::make_shared<FiniteWatch>(state.model.mesh, state.model.device());
  state.observers.add(watch_);
}

RefusedSteps::~RefusedSteps() { state_.observers.remove(watch_); }

bool RefusedSteps::may_skip() const { return at_.batches_passed_over < state_.config.train.skip_limit; }

StepLimits RefusedSteps::limits() const {
  return state_.config.train.on_spike != OnSpike::kLog && may_skip() ? state_.position.spikes.limits() : StepLimits{};
}

StepFate RefusedSteps::fate_of(const StepReport& report, const Batch& batch, int64_t saved_step) {
  if (report.verdict == Verdict::kRefuse) return refuse(report, batch, saved_step);
  const double loss = report.parts.mean_loss();
  const SpikeFindings found = state_.position.spikes.take(report.step, loss, report.grad_norm);
  if (state_.model.mesh.is_first()) tell(found, report);
  if (report.verdict == Verdict::kApply) return {.is_applied = true};
  state_.model.parameters.grad().zero_();
  return pass_over(report, batch, found.spike, state_.config.train.on_spike == OnSpike::kRollBack, saved_step);
}

void RefusedSteps::tell(const SpikeFindings& found, const StepReport& report) const {
  for (const LevelRise& rise : found.rises) {
    log::warn("step {}: {}", report.step, rise.text());
    record("level", report.step,
           {{"text", rise.text()},
            {"of", rise.of},
            {"before", rise.before},
            {"now", rise.now},
            {"lowest", rise.lowest},
            {"lowest_step", rise.lowest_step}});
  }
  if (found.spike.empty() || report.verdict != Verdict::kApply) return;  // else pass_over tells it
  log::warn("step {}: {}", report.step, found.spike);
  record("spike", report.step, {{"text", found.spike}});
}

void RefusedSteps::record(const char* event, int64_t step, nlohmann::ordered_json more) const {
  EventLog(RunFolder{state_.config.train.run_dir}.events(), at_.attempt).add(event, step, std::move(more));
}

// Continues behind the batch, with the present weights or with those of the newest checkpoint.
StepFate RefusedSteps::pass_over(const StepReport& report, const Batch& batch, const std::string& cause, bool roll_back,
                                 int64_t saved_step) {
  ++at_.batches_passed_over;
  const bool rolls_back = roll_back && saved_step > 0;
  if (state_.model.mesh.is_first()) {
    log::warn("step {}: {}. Its batch is passed over ({} of at most {}), and {}{}", report.step, cause,
              at_.batches_passed_over, state_.config.train.skip_limit,
              rolls_back ? "the run continues from its newest checkpoint" : "the step is done with the next one",
              roll_back && !rolls_back ? ", since there is no checkpoint" : "");
    record(rolls_back ? "roll_back" : "skip", report.step - 1,
           {{"text", cause}, {"drawn", describe_position(state_.position.ledger)}});
  }
  if (rolls_back && report.verdict == Verdict::kSpike) state_.position.spikes.roll_back_before(report.step);
  if (rolls_back) return {.roll_back = RollBack{batch.next, state_.position.spikes}};
  state_.position.ledger = batch.next;
  return {};
}

StepFate RefusedSteps::refuse(const StepReport& report, const Batch& batch, int64_t saved_step) {
  Mesh& mesh = state_.model.mesh;
  const std::string gradient =
      first_of_any(mesh.host_group(GroupKind::kWorld), first_non_finite_gradient(state_.model.parameters));
  const NumbersVerdict verdict = find_fault(state_, {batch, report.step, watch_});
  const std::string cause = cause_of(report, verdict, gradient, mesh.world().size());
  const OnNonFinite how = state_.config.train.on_non_finite;
  const bool skips = how != OnNonFinite::kStop && verdict.fault != NumbersVerdict::Fault::kNode;
  if (skips && may_skip()) return pass_over(report, batch, cause, how == OnNonFinite::kRollBack, saved_step);
  const std::string message = fmt::format(
      "step {}: {}. Nothing was updated. {}{}", report.step, cause,
      skips ? fmt::format("{} batches were passed over before (train.skip_limit). ", at_.batches_passed_over) : "",
      remedy_of(verdict, saved_step, describe_position(state_.position.ledger)));
  const auto& origin = verdict.origin;
  const std::string tensor = gradient.empty() && origin ? origin->seen.place : gradient;
  throw NumbersError(message, tensor, verdict.exit_code(), origin ? origin->rank : -1, origin ? origin->host : "");
}

RollBack RefusedSteps::refuse_weights(double validation_loss, const std::string& source, int64_t saved_step) {
  const Mesh& mesh = state_.model.mesh;
  const int64_t step = state_.position.step;
  std::string own = first_non_finite_weight(state_.model.parameters);
  if (!own.empty()) own = fmt::format("{} {}", mesh.rank(), own);
  const std::string first = first_of_any(mesh.host_group(GroupKind::kWorld), own);
  const int rank = first.empty() ? -1 : std::stoi(first);
  const std::string host = first.empty() ? "" : mesh.world().hosts()[static_cast<size_t>(rank)];
  const std::string weight = first.empty() ? "" : first.substr(first.find(' ') + 1);
  const std::string cause = fmt::format(
      "the weights after this step give a validation loss{} that is not finite ({}); {}",
      source.empty() ? "" : " of " + source, without_sign_of_nan(validation_loss),
      first.empty() ? "every weight is finite"
                    : fmt::format("the first weight that is not finite is {}, on rank {} ({})", weight, rank, host));
  if (state_.config.train.on_non_finite == OnNonFinite::kRollBack && may_skip() && saved_step > 0 &&
      saved_step < step) {
    ++at_.batches_passed_over;
    if (mesh.is_first()) {
      log::warn(
          "step {}: {}. Its data are passed over ({} of at most {}), and the run continues from its newest "
          "checkpoint",
          step, cause, at_.batches_passed_over, state_.config.train.skip_limit);
      record("roll_back", step - 1, {{"text", cause}, {"drawn", describe_position(state_.position.ledger)}});
    }
    return {state_.position.ledger, state_.position.spikes};
  }
  throw NumbersError(
      fmt::format("step {}: {}. Nothing of this step was saved. {}", step, cause, remedy_of({}, saved_step, "")),
      weight, exit_code::kNumbersEverywhere, rank, host);
}

}  // namespace athanor::inline watch
