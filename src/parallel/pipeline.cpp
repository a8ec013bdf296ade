#include "parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include "parallel/pipeline_mail.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

/// A schedule of forwards only, for any number of microbatches, in the order of the interleaved schedule: in groups of
/// as many as there are ranks, each group through one chunk after the other.
Schedule forwards_alone(int ranks, int chunks, int microbatches) {
  std::vector<Action> actions;
  for (int first = 0; first < microbatches; first += ranks) {
    for (int c = 0; c < chunks; ++c) {
      for (int m = first; m < std::min(first + ranks, microbatches); ++m) actions.push_back({Work::kForward, m, c});
    }
  }
  return {"forwards alone", ranks, chunks, microbatches, std::vector(static_cast<size_t>(ranks), actions)};
}

}  // namespace

/// One pass through the microbatches.
class Pipeline::Pass {
 public:
  /// @param observers  null if there are none, as in evaluation.
  Pass(Pipeline& pipeline, const Schedule& schedule, std::span<const Microbatch> microbatches,
       const Observers* observers)
      : schedule_(schedule), microbatches_(microbatches), pipeline_(pipeline), observers_(observers),
        rank_(pipeline.ranks_.rank()),
        mail_(schedule, pipeline.ranks_, [this](const Message& message) { return room_for(message); }) {}

  const std::vector<Action>& actions() const { return schedule_.actions[static_cast<size_t>(rank_)]; }
  const Microbatch& microbatch(const Action& a) const { return microbatches_[static_cast<size_t>(a.microbatch)]; }
  Stage& stage(const Action& a) { return stage_for(a.chunk, a.microbatch); }
  bool is_first(const Action& a) const { return number_of(a) == 0; }
  bool is_last(const Action& a) const { return number_of(a) == schedule_.num_stages() - 1; }

  /// The input of an action: for a forward on the first stage, tokens; for a backward on the last stage, undefined.
  Tensor input(const Action& a) {
    if (a.work == Work::kForward && is_first(a)) return microbatch(a).tokens;
    if (a.work == Work::kBackward && is_last(a)) return {};
    Tensor content = mail_.take({a.work, a.microbatch, number_of(a)});
    if (observers_ && schedule_.ranks > 1)
      tell(a, "pipeline.from_stage.", number_of(a) - (a.work == Work::kForward ? 1 : -1), content);
    return content;
  }

  /// Sends the output to the stage that waits for it: the next one, or the previous one for a backward.
  void output(const Action& a, Tensor content) {
    const bool forward = a.work == Work::kForward;
    if (forward ? is_last(a) : is_first(a)) return;
    const Spec& spec = forward ? stage(a).out : stage(a).in;
    ATHANOR_ASSERT(content.defined() && content.sizes() == spec.shape && content.scalar_type() == spec.dtype);
    const int to = number_of(a) + (forward ? 1 : -1);
    if (observers_ && schedule_.ranks > 1) tell(a, "pipeline.to_stage.", to, content);
    mail_.put({a.work, a.microbatch, to}, std::move(content));
  }

  void finish() { mail_.finish(); }

 private:
  int number_of(const Action& a) const { return schedule_.stage_of(rank_, a.chunk); }

  void tell(const Action& a, const char* prefix, int stage, const Tensor& content) const {
    const std::string place = prefix + std::to_string(stage);
    using Phase = Observation::Phase;
    observers_->tell({place, a.work == Work::kForward ? Phase::kForward : Phase::kBackward, a.microbatch, content});
  }

  Stage& stage_for(int chunk, int microbatch) {
    Stage& stage = *pipeline_.chunks_[static_cast<size_t>(chunk)];
    std::array<int64_t, 2>& expected = pipeline_.expected_[static_cast<size_t>(chunk)];
    const Tensor& tokens = microbatches_[static_cast<size_t>(microbatch)].tokens;
    const std::array<int64_t, 2> shape{tokens.size(0), tokens.size(1)};
    if (expected != shape) stage.expect(shape[0], shape[1]);
    expected = shape;
    return stage;
  }

  Tensor room_for(const Message& message) {
    Stage& stage = stage_for(message.stage / schedule_.ranks, message.microbatch);
    const Spec& spec = message.work == Work::kForward ? stage.in : stage.out;
    const auto device = microbatches_[static_cast<size_t>(message.microbatch)].tokens.device();
    return at::empty(spec.shape, at::TensorOptions(spec.dtype).device(device));
  }

  const Schedule& schedule_;
  std::span<const Microbatch> microbatches_;
  Pipeline& pipeline_;
  const Observers* observers_;
  int rank_;
  PipelineMail mail_;
};

Pipeline::Pipeline(std::vector<Stage*> chunks, comm::Communicator& ranks, const Observers* observers)
    : chunks_(std::move(chunks)), ranks_(ranks), observers_(observers), expected_(chunks_.size(), {-1, -1}) {
  ATHANOR_ASSERT(!chunks_.empty());
}

void Pipeline::set_schedule(Schedule schedule) {
  ATHANOR_ASSERT(schedule.ranks == ranks_.size() && schedule.chunks == static_cast<int>(chunks_.size()));
  check_schedule(schedule);
  schedule_ = std::move(schedule);
}

LossParts Pipeline::forward_backward(std::span<const Microbatch> microbatches, const PipelineHooks& hooks) {
  ATHANOR_ASSERT(!schedule_.actions.empty() && static_cast<int>(microbatches.size()) == schedule_.microbatches);
  timeline_.clear();
  std::vector<LossParts> parts(microbatches.size() * chunks_.size());
  began_ = Clock::now();
  const auto now = [&] { return std::chrono::duration<double>(Clock::now() - began_).count(); };
  Pass pass(*this, schedule_, microbatches, observers_ && !observers_->empty() ? observers_ : nullptr);
  for (const Action& a : pass.actions()) {
    if (hooks.before) hooks.before(a);
    const double asked_s = now();
    Tensor input = pass.input(a);
    const double begin_s = now();
    if (hooks.begins) hooks.begins(a);
    Stage& stage = pass.stage(a);
    Tensor output;
    if (a.work == Work::kForward) {
      output = stage.forward(a.microbatch, std::move(input), &pass.microbatch(a).labels);
    } else {
      if (a.microbatch + 1 == schedule_.microbatches && hooks.before_last_backward) hooks.before_last_backward(a.chunk);
      output = stage.backward(a.microbatch, std::move(input));
      parts[static_cast<size_t>(a.microbatch) * chunks_.size() + static_cast<size_t>(a.chunk)] =
          stage.take_parts(a.microbatch);
    }
    if (hooks.ends) hooks.ends(a);
    timeline_.push_back({a, begin_s, now(), begin_s - asked_s});
    pass.output(a, std::move(output));
    if (hooks.after) hooks.after(a);
  }
  pass.finish();
  LossParts sum;  // in the order of microbatches, and of stages within each
  for (const LossParts& part : parts) sum += part;
  return sum;
}

std::vector<TokenScores> Pipeline::score(std::span<const Microbatch> microbatches) {
  std::vector<TokenScores> scores;
  if (ranks_.rank() == ranks_.size() - 1) scores.resize(microbatches.size());
  const Schedule schedule =
      forwards_alone(ranks_.size(), static_cast<int>(chunks_.size()), static_cast<int>(microbatches.size()));
  Pass pass(*this, schedule, microbatches, nullptr);
  for (const Action& a : pass.actions()) {
    Tensor input = pass.input(a);
    const Labels* labels = &pass.microbatch(a).labels;
    if (pass.is_last(a)) {
      scores[static_cast<size_t>(a.microbatch)] = pass.stage(a).score(std::move(input), labels);
    } else {
      pass.output(a, pass.stage(a).forward_only(std::move(input), labels));
    }
  }
  pass.finish();
  return scores;
}

}  // namespace athanor
