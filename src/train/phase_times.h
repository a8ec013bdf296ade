#pragma once
// Where the time of a rank goes, from phase to phase, and that of all ranks side by side.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "board/phase.h"
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

}  // namespace athanor::inline train
