#pragma once
// Muon: momentum, made orthogonal by Newton and Schulz's iteration, for the matrices of the layers. Sources: Jordan et
// al. 2024; Liu et al. 2025 (Moonlight), for the scale by which one learning rate serves Muon and AdamW, and decay.
//
// Every expert of a stack is a matrix, and so are q, k and v, which are separate parameters here. Each matrix is
// computed once, on its home rank (optim/home_matrices.h), with the bits that any rank would give it.

#include "config/run_config.h"
#include "ops/newton_schulz.h"
#include "optim/home_matrices.h"
#include "optim/optimizer.h"

namespace athanor::inline optim {

/// Returns the settings of optimizer.newton_schulz_*.
ops::NewtonSchulz newton_schulz_of(const OptimizerConfig& config);

/// Returns the factor of the orthogonal update of a matrix (optimizer.muon_scale).
double muon_scale(MuonScale rule, int64_t rows, int64_t columns);

class Muon : public Optimizer {
 public:
  /// @param config  gives momentum, nesterov, the settings of the iteration and the scale.
  /// @param homes  must outlive this.
  Muon(const OptimizerConfig& config, OptimizedParameters parameters, const HomeMatrices& homes);

  /// Updates the momentum and leaves the scaled orthogonal directions in the gradients' memory. Collective: the
  /// exchanges of HomeMatrices::update.
  void begin(const Update& update) override;
  int64_t apply(const Update& update, FlatRange range) override;
  using Optimizer::apply;

  const HomePlan& plan() const { return plan_; }

 private:
  kernels::MomentumStep momentum_;
  ops::NewtonSchulz iteration_;
  MuonScale scale_;
  const HomeMatrices& homes_;
  HomePlan plan_;
};

}  // namespace athanor::inline optim
