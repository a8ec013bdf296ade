// How an attempt ends: what RunSaves tells about it, and its exit code.

#include <fmt/core.h>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/rotation.h"
#include "record/last_words.h"
#include "saves/run_saves.h"

namespace athanor::inline saves {

RunSaves::Ending RunSaves::stopped(const Requests& asked, const std::string& limit) const {
  const auto& kept = state_.config.checkpoint;
  const std::string why = asked.stop_signal != 0 ? signal_name(asked.stop_signal) : limit;
  const std::string stopped = fmt::format("stopped by {} after step {}", why, state_.position.step);
  if (is_saved()) {
    const bool as_model = kept.interval.is_off() && kept.model_interval > 0 && state_.position.step > first_step_;
    return {exit_code_of_stop(asked.stop_signal),
            stopped + (as_model ? "; its model was saved (checkpoint.interval is 0): the same command continues from "
                                  "it with fresh moments"
                                : "; run the same command again to continue")};
  }
  if (!not_finite_.empty()) return not_finite();
  if (kept.interval.is_off() && kept.model_interval == 0)
    return {exit_code::kNotSaved, stopped +
                                      ", and nothing was saved: checkpoint.interval and "
                                      "checkpoint.model_interval are 0, so the same command begins at step 0"};
  return {exit_code::kNotSaved,
          fmt::format("{}, and this step was NOT saved: what was saved before is all there is; {} {} "
                      "and run the same command again, which repeats the steps since{}",
                      stopped, remedy_, state_.config.train.run_dir,
                      last_local_step_ == state_.position.step
                          ? ", unless the nodes still have the local checkpoint of this step"
                          : "")};
}

// No step follows that would be refused.
RunSaves::Ending RunSaves::not_finite() const {
  return {exit_code::kNumbersEverywhere,
          fmt::format("step {}: the update gave values that are not finite: {}. The step was not saved. Lower "
                      "optimizer.lr and run again: it repeats the steps since the last checkpoint",
                      state_.position.step, not_finite_)};
}

RunSaves::Ending RunSaves::complete() const {
  if (checkpoint_saved_ && model_saved_) return {exit_code::kComplete, ""};
  if (!not_finite_.empty()) return not_finite();
  return {exit_code::kNotSaved,
          fmt::format("the run is complete but its last {} is not on disk: {} {} and run it again",
                      checkpoint_saved_ ? "model" : "checkpoint", remedy_, state_.config.train.run_dir)};
}

int RunSaves::finish(const Ending& ending) {
  const bool of_numbers = ending.exit_code == exit_code::kNumbersEverywhere;
  if (ending.exit_code != exit_code::kNotSaved && ending.exit_code != exit_code::kInput && !of_numbers) {
    // The run's folder has a checkpoint of this step: what is local only takes memory.
    remove_local();
    if (!ending.text.empty()) log::info("{}", ending.text);
    tell("end", {{"exit_code", ending.exit_code}, {"cause", exit_code::cause_of(ending.exit_code)}});
  } else if (mesh_.is_first()) {
    log::error("{}", ending.text);
    const int at_fault = ending.exit_code == exit_code::kNotSaved ? Failure::kReporter : Failure::kUnknown;
    leave_last_words(at_.moment(), mesh_.rank(), mesh_.world().host(),
                     {ending.text, ending.exit_code, of_numbers ? tensor_ : "", at_fault});
  }
  return ending.exit_code;
}

int RunSaves::end_complete() { return finish(complete()); }

int RunSaves::end_stopped(const Requests& asked, const std::string& limit) {
  if (asked.stop_signal != 0) {
    tell("stop", {{"signal", asked.stop_signal}});
  } else {
    tell("stop", {{"limit", limit}});
  }
  return finish(stopped(asked, limit));
}

// A configuration that saves nothing is no failed save: another start would not come farther.
RunSaves::Ending RunSaves::stopped_by_rule(const std::string& reason) const {
  const auto& kept = state_.config.checkpoint;
  const bool saves_nothing = kept.interval.is_off() && kept.model_interval == 0;
  const std::string stopped = fmt::format("step {}: stopped by the rule {}", state_.position.step, reason);
  if (!is_saved() && !not_finite_.empty()) return not_finite();
  if (!is_saved() && !saves_nothing)
    return {exit_code::kNotSaved,
            fmt::format("{}; this step was NOT saved: what was saved before is all there is; {} {}", stopped, remedy_,
                        state_.config.train.run_dir)};
  return {
      exit_code::kRule,
      stopped +
          (saves_nothing ? ". Nothing was saved, since checkpoint.interval and checkpoint.model_interval are 0"
                         : ". The step is saved") +
          (state_.position.step >= state_.run_config.train.steps
               ? ", and the run is complete"
               : ". To continue, change or remove the rule and run again; with the same rule it would stop at the next "
                 "evaluation for which it holds")};
}

int RunSaves::end_by_rule(const std::string& reason) {
  tell("stop", {{"rule", reason}});
  return finish(stopped_by_rule(reason));
}

// For a run that ends since something failed between two steps.
void RunSaves::save_what_is_done() {
  const auto& keeps = state_.config.checkpoint;
  finish();
  if (!is_saved() && !keeps.interval.is_off()) save_checkpoint(Why::kLast);
  if (!is_saved() && keeps.interval.is_off() && keeps.model_interval > 0) save_model();
}

std::string RunSaves::what_is_kept(const std::string& again) const {
  const int64_t step = state_.position.step;
  if (step == first_step_) return "no step was done since the run was started";
  if (!is_saved()) return fmt::format("what came after step {} is not saved", saved_step());
  return fmt::format("step {} is saved, so run the same command again {}", step, again);
}

// The rank that found the error reports it.
int RunSaves::end_unreadable(const UnreadableData& failure) {
  const int64_t step = state_.position.step;
  save_what_is_done();
  at_.set_step(step + 1);
  at_.enter("data", board::Phase::kData);
  const std::string text =
      fmt::format("step {}: {}; {}", step + 1, failure.what(), what_is_kept("when it can be read"));
  if (mesh_.world().rank() == failure.rank()) throw Error(text, exit_code::kIo);
  log::warn_on_all("{}", text);
  return exit_code::kIo;
}

int RunSaves::end_unevaluated(const UnreadableData& failure) {
  const int64_t step = state_.position.step;
  save_what_is_done();
  at_.enter("evaluate", board::Phase::kEvaluate);
  const std::string text = fmt::format("step {}: its evaluation failed: {}; {}", step, failure.what(),
                                       what_is_kept("when this is corrected: it begins with this evaluation, unless "
                                                    "eval.interval is 0"));
  if (mesh_.world().rank() == failure.rank()) throw Error(text, exit_code::kEvaluation);
  log::warn_on_all("{}", text);
  return exit_code::kEvaluation;
}

int RunSaves::end_used_up(const std::string& excess) {
  save_what_is_done();
  return finish(
      {exit_code::kInput,
       fmt::format("step {}: {}, since batches were passed over; set a larger max_epochs, or train.steps to {}; "
                   "{}",
                   state_.position.step + 1, excess, state_.position.step, what_is_kept("with one of these"))});
}

}  // namespace athanor::inline saves
