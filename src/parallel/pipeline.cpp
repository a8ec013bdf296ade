#include "parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/fault.h"
#include "parallel/pipeline_mail.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

/// Rounded where a test plants it: fp32 to bf16, bf16 to four bits less.
Tensor on_its_way(Tensor hidden) {
  if (!fault_planted("pipeline.wrong_dtype")) return hidden;
  if (hidden.scalar_type() != at::kBFloat16) return hidden.to(at::kBFloat16).to(hidden.scalar_type());
  const Tensor wide = hidden.to(at::kFloat), far = wide * ((1 << 20) + 1);  // Veltkamp's splitting leaves 24 − 20 bits
  return (far - (far - wide)).to(at::kBFloat16);
}

/// Forwards alone, of any number of microbatches, in the order of the interleaved schedule: in groups of as many as
/// there are ranks, a group through one chunk after the other.
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

/// One way through the microbatches.
class Pipeline::Pass {
 public:
  Pass(Pipeline& pipeline, const Schedule& schedule, std::span<const Microbatch> microbatches)
      : schedule_(schedule), microbatches_(microbatches), pipeline_(pipeline), rank_(pipeline.ranks_.rank()),
        mail_(schedule, pipeline.ranks_, [this](const Message& message) { return room_for(message); }) {}

  const std::vector<Action>& actions() const { return schedule_.actions[static_cast<size_t>(rank_)]; }
  const Microbatch& microbatch(const Action& a) const { return microbatches_[static_cast<size_t>(a.microbatch)]; }
  Stage& stage(const Action& a) { return stage_for(a.chunk, a.microbatch); }
  bool is_first(const Action& a) const { return number_of(a) == 0; }
  bool is_last(const Action& a) const { return number_of(a) == schedule_.num_stages() - 1; }

  /// Of a forward: tokens on the first stage. Of a backward: undefined on the last.
  Tensor input(const Action& a) {
    if (a.work == Work::kForward && is_first(a)) return microbatch(a).tokens;
    if (a.work == Work::kBackward && is_last(a)) return {};
    return mail_.take({a.work, a.microbatch, number_of(a)});
  }

  /// Sends on what the next stage, or of a backward the one before, waits for.
  void output(const Action& a, Tensor content) {
    if (a.work == Work::kForward ? is_last(a) : is_first(a)) return;
    if (!swaps_ || a.work == Work::kBackward || !is_first(a) || a.microbatch > 1) return send(a, std::move(content));
    if (a.microbatch == 0) {
      held_ = std::move(content);
      return;
    }
    send({a.work, 0, a.chunk}, std::move(content));
    send(a, std::move(held_));
  }

  void finish() { mail_.finish(); }

 private:
  int number_of(const Action& a) const { return schedule_.stage_of(rank_, a.chunk); }

  void send(const Action& a, Tensor content) {
    const bool forward = a.work == Work::kForward;
    const Spec& spec = forward ? stage(a).out : stage(a).in;
    ATHANOR_ASSERT(content.defined() && content.sizes() == spec.shape && content.scalar_type() == spec.dtype);
    if (forward && schedule_.ranks > 1) content = on_its_way(std::move(content));
    mail_.put({a.work, a.microbatch, number_of(a) + (forward ? 1 : -1)}, std::move(content));
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
  int rank_;
  PipelineMail mail_;
  // A planted fault: the first microbatch's hidden states wait here, to be sent as the second's.
  const bool swaps_ = schedule_.ranks > 1 && rank_ == 0 && microbatches_.size() > 1 &&
                      fault_planted("pipeline.microbatch_swapped");
  Tensor held_;
};

Pipeline::Pipeline(std::vector<Stage*> chunks, comm::Communicator& ranks)
    : chunks_(std::move(chunks)), ranks_(ranks), expected_(chunks_.size(), {-1, -1}) {
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
  Pass pass(*this, schedule_, microbatches);
  for (const Action& a : pass.actions()) {
    const double asked_s = now();
    Tensor input = pass.input(a);
    const double begin_s = now();
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
  Pass pass(*this, schedule, microbatches);
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
