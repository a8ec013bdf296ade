#include "run/stage_batches.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/wall_clock.h"
#include "train/microbatch.h"
#include "train/unreadable_data.h"

namespace athanor::inline run {

StageBatches::StageBatches(TrainState& state, const Mesh& mesh, std::vector<StageData> stages)
    : state_(state), mesh_(mesh), stages_(std::move(stages)) {}

bool StageBatches::must_enter() const { return !loader_ || state_.position.step == state_.position.phase.end; }

bool StageBatches::is_at_end() const {
  return state_.position.step == state_.run_config.train.steps || state_.position.step == state_.position.phase.end;
}

void StageBatches::enter() {
  const auto holds_next = [this](const StageData& data) { return state_.position.step < data.stage.end(); };
  data_ = &*std::find_if(stages_.begin(), stages_.end(), holds_next);
  const auto& config = data_->stage.config;
  state_.enter(data_->stage);
  if (begins_other_data()) state_.position.spikes = {};
  if (stages_.size() > 1) log::info("step {}: {} begins", state_.position.step + 1, data_->stage.name);
  next_.reset();
  std::vector<int64_t> held;  // all
  if (!state_.model.plan.is_trivial())
    held = sequences_of(state_.model.mesh.layout(), mesh_.data_rank(), config.train.micro_batch_size);
  loader_.emplace(data_->train, static_cast<uint64_t>(config.train.seed), state_.position.ledger,
                  config.train.global_batch_size, static_cast<int>(config.data.num_threads),
                  std::max<int>(2, static_cast<int>(config.data.num_threads)), std::move(held));
  loader_->record_spans(spans_);
  agree_on_reading(mesh_.group(GroupKind::kWorld), failure_of_next());
}

// The losses of a training phase, or of a mix that nothing was drawn from, are not those of before.
bool StageBatches::begins_other_data() const {
  if (!data_->stage.is_of_ramp && state_.position.step == data_->stage.begin) return true;
  const DataLedger ledger = data_->train.enter(state_.position.ledger);
  return std::ranges::all_of(ledger.mix, [](const auto& share) { return share.second.drawn == 0; });
}

Batch StageBatches::take() {
  Batch batch = next_ ? *std::exchange(next_, std::nullopt) : loader_->next();
  const std::string excess = describe_excess(data_->train, batch.next);
  if (!excess.empty()) throw SourceUsedUp{excess};
  return batch;
}

const Batch* StageBatches::ahead() {
  const int64_t step = state_.position.step + 1;  // the one that is computed
  const bool is_last = step == state_.run_config.train.steps || step == state_.position.phase.end;
  if (next_ || is_last || !loader_->has_next()) return nullptr;
  next_ = loader_->next();
  return &*next_;
}

int64_t StageBatches::tokens_left() const {
  int64_t tokens = 0;
  for (const StageData& each : stages_)
    tokens += each.stage.tokens_between(state_.position.step, state_.run_config.train.steps);
  return tokens;
}

std::exception_ptr StageBatches::failure_of_next() {
  if (!loader_ || next_ || is_at_end()) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  std::exception_ptr failure = loader_->failure();
  waited_s_ += seconds_since(start);
  return failure;
}

void StageBatches::record_spans(std::shared_ptr<SpanLog> spans) {
  spans_ = std::move(spans);
  if (loader_) loader_->record_spans(spans_);
}

double StageBatches::take_waited_s() { return std::exchange(waited_s_, 0); }

}  // namespace athanor::inline run
