#pragma once
// What a rank of a run is doing: shown on the board of its node, timed, and logged for a trace.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "board/phase.h"
#include "board/publisher.h"
#include "parallel/layer_spans.h"
#include "parallel/mesh.h"
#include "train/rank_times.h"

namespace athanor::inline train {

/// Adds up the seconds of this rank's phases. Those of forward, backward and the update are divided into computation
/// and waits for other ranks (Mesh::waited_s); the other parts contain their waits. On a device they are the host's
/// times, which queues the work and waits for it at the end of the update.
class PhaseTimes {
 public:
  /// `mesh` must outlive this.
  explicit PhaseTimes(const Mesh& mesh) : mesh_(mesh), waited_s_(mesh.waited_s()) {}

  void enter(board::Phase phase);
  /// Returns the seconds since the last call, or since the constructor.
  std::array<double, kNumTimeParts> take();

 private:
  void add();

  const Mesh& mesh_;
  board::Phase phase_ = board::Phase::kIdle;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  double waited_s_;
  std::array<double, kNumTimeParts> seconds_{};
};

/// Gathers the times of all ranks every kSteps steps.
class RankTimesGatherer {
 public:
  static constexpr int kSteps = 20;

  /// `mesh` must outlive this, as must `times`.
  RankTimesGatherer(const Mesh& mesh, PhaseTimes& times) : mesh_(mesh), times_(times) {}
  /// To be called after each step. Collective over the world every kSteps steps, if there are several ranks: one
  /// all-gather of 40 bytes a rank. @return the means of these steps, on every rank.
  std::optional<RankTimes> took_step();

 private:
  const Mesh& mesh_;
  PhaseTimes& times_;
  int num_steps_ = 0;
};

/// Logs the phases as spans. Forward and backward are not among them: the actions of the pipeline are logged when they
/// are over (parallel/trace.h).
class PhaseSpans {
 public:
  PhaseSpans(std::shared_ptr<SpanLog> log, std::shared_ptr<LayerSpans> layers)
      : log_(std::move(log)), layers_(std::move(layers)) {}

  void enter(board::Phase phase) {
    log_->close(open_);
    open_ = SpanLog::kNone;
    const bool has_actions = phase == board::Phase::kForward || phase == board::Phase::kBackward;
    if (!has_actions && phase != board::Phase::kIdle)
      open_ = log_->open_always(
          {Span::Row::kTraining,
           phase == board::Phase::kData ? "wait for batch" : board::phase_name(static_cast<uint32_t>(phase)), "phase"});
  }

  /// An action of the pipeline begins to compute, and has computed.
  void begin_action() { layers_->begin_action(); }
  void end_action() { layers_->end_action(); }

 private:
  std::shared_ptr<SpanLog> log_;
  std::shared_ptr<LayerSpans> layers_;
  size_t open_ = SpanLog::kNone;
};

/// Is told of each phase when it begins.
class PhaseWatcher {
 public:
  virtual ~PhaseWatcher() = default;
  virtual void begins(board::Phase phase) = 0;
};

struct RunPhases {
  board::Publisher board;
  PhaseWatcher* watcher = nullptr;  ///< may be null, as may the next two
  std::shared_ptr<PhaseTimes> times;
  std::shared_ptr<PhaseSpans> spans;

  /// Whether anything is to be told of a phase.
  bool are_seen() const { return board || watcher || times || spans; }

  /// @param microbatch  −1 outside of forward and backward.
  void enter(board::Phase phase, int microbatch = -1) const {
    board.set_phase(phase, microbatch);
    if (times) times->enter(phase);
    if (spans) spans->enter(phase);
    if (watcher) watcher->begins(phase);
  }
};

}  // namespace athanor::inline train
