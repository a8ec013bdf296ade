#pragma once
// The replay of each optimizer; make_replay (replay.h) chooses one. docs/optimizers.md has their formulas.

#include "verify/replay/replay.h"

namespace athanor::inline verify {

/// AdamW. Its bound counts roundings instead of following them.
class AdamwReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  std::vector<double> exp_avg_, exp_avg_sq_;
};

class SgdReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  std::vector<Rounded> momentum_;
};

/// LAMB, whose ratio of norms is of the whole parameter, or of each of its experts.
class LambReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  Rounded direction_of(size_t element, int64_t step, const Rounded& grad);
  std::vector<Rounded> exp_avg_, exp_avg_sq_;
};

/// Sophia-G, whose Hessian follows from the gradients of second backwards.
class SophiaReplay : public Replay {
 public:
  using Replay::Replay;

  std::span<const Rounded> hessian() const override { return hessian_; }

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  void learn_from_second(const ReplayedStep& step);
  Rounded direction_of(size_t element) const;
  std::vector<Rounded> exp_avg_, hessian_;
};

/// Muon, of the whole matrix or of each expert's.
class MuonReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  std::vector<Rounded> momentum_;
};

}  // namespace athanor::inline verify
