#include "parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include "parallel/pipeline_mail.h"

namespace athanor::inline parallel {
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

/// What is received and sent in one pass through the microbatches.
class Pipeline::Messages {
 public:
  /// @param observers  null if there are none, as in evaluation.
  Messages(Pipeline& pipeline, const Schedule& schedule, std::span<const Microbatch> microbatches,
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

LossParts Pipeline::forward_backward(std::span<const Microbatch> microbatches, GradientReducer* sums) {
  PipelinePass pass(*this, microbatches);
  for (const Action& action : pass.actions()) pass.send(action, pass.compute(action, pass.receive(action), sums));
  return pass.finish();
}

std::vector<TokenScores> Pipeline::score(std::span<const Microbatch> microbatches) {
  std::vector<TokenScores> scores;
  if (ranks_.rank() == ranks_.size() - 1) scores.resize(microbatches.size());
  const Schedule schedule =
      forwards_alone(ranks_.size(), static_cast<int>(chunks_.size()), static_cast<int>(microbatches.size()));
  Messages messages(*this, schedule, microbatches, nullptr);
  for (const Action& a : messages.actions()) {
    Tensor input = messages.input(a);
    const Labels* labels = &messages.microbatch(a).labels;
    if (messages.is_last(a)) {
      scores[static_cast<size_t>(a.microbatch)] = messages.stage(a).score(std::move(input), labels);
    } else {
      messages.output(a, messages.stage(a).forward_only(std::move(input), labels));
    }
  }
  messages.finish();
  return scores;
}

PipelinePass::PipelinePass(Pipeline& pipeline, std::span<const Microbatch> microbatches)
    : pipeline_(pipeline), parts_(microbatches.size() * pipeline.chunks_.size()) {
  const Schedule& schedule = pipeline.schedule_;
  ATHANOR_ASSERT(!schedule.actions.empty() && static_cast<int>(microbatches.size()) == schedule.microbatches);
  pipeline.timeline_.clear();
  pipeline.began_ = Clock::now();
  const Observers* observers = pipeline.observers_;
  messages_ = std::make_unique<Pipeline::Messages>(pipeline, schedule, microbatches,
                                                   observers && !observers->empty() ? observers : nullptr);
}

PipelinePass::~PipelinePass() = default;

const std::vector<Action>& PipelinePass::actions() const { return messages_->actions(); }

double PipelinePass::now_s() const { return std::chrono::duration<double>(Clock::now() - pipeline_.began_).count(); }

Tensor PipelinePass::receive(const Action& action) {
  asked_s_ = now_s();
  Tensor input = messages_->input(action);
  begin_s_ = now_s();
  return input;
}

Tensor PipelinePass::compute(const Action& action, Tensor input, GradientReducer* sums) {
  Stage& stage = messages_->stage(action);
  Tensor output;
  if (action.work == Work::kForward) {
    output = stage.forward(action.microbatch, std::move(input), &messages_->microbatch(action).labels);
  } else {
    const bool is_last = action.microbatch + 1 == pipeline_.schedule_.microbatches;
    output = stage.backward(action.microbatch, std::move(input), is_last ? sums : nullptr);
    const size_t place =
        static_cast<size_t>(action.microbatch) * pipeline_.chunks_.size() + static_cast<size_t>(action.chunk);
    parts_[place] = stage.take_parts(action.microbatch);
  }
  return output;
}

void PipelinePass::send(const Action& action, Tensor output) {
  pipeline_.timeline_.push_back({action, begin_s_, now_s(), begin_s_ - asked_s_});
  messages_->output(action, std::move(output));
}

LossParts PipelinePass::finish() {
  messages_->finish();
  LossParts sum;  // in the order of microbatches, and of stages within each
  for (const LossParts& part : parts_) sum += part;
  return sum;
}

}  // namespace athanor::inline parallel
