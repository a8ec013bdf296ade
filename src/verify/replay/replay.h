#pragma once
// Computes in double precision, without buckets, shards or kernels, what an optimizer makes of the gradients that a run
// recorded.
//
// A run's parameters follow from its own gradients except for fp32's rounding, in whatever type the gradients were
// computed. So an update that some rank makes from other gradients, twice or not at all, is seen in a bf16 run as
// clearly as in an fp32 run. A replay computes a bound on that rounding along with the values: each operation of the
// optimizer adds what it rounds, and passes on the errors of its operands, to first order.

#include <memory>
#include <span>
#include <vector>

#include "arch/inventory.h"
#include "config/run_config.h"

namespace athanor::inline verify {

/// What a run recorded of one parameter in one step.
struct ReplayedStep {
  int64_t number = 0;           ///< from 1
  double lr = 0;                ///< learning rate of the step, before the lr_scale of the parameter's group
  double grad_norm = 0;         ///< norm over the whole model, before clipping
  std::span<const float> grad;  ///< gradient of the whole parameter, summed over the batch, before clipping
  /// that of a second backward, which is not clipped; empty if the step has none
  std::span<const float> drawn_grad;
  int64_t targets = 0;  ///< number in the batch, over which the gradients are means
};

/// A value, and a bound on the absolute error that it has in fp32.
struct Rounded {
  double value = 0, error = 0;
};

/// The replay of one parameter.
class Replay {
 public:
  /// @param master  the initial master weights of the whole parameter, row-major.
  Replay(const RunConfig& config, const ParameterSpec& spec, const std::vector<float>& master);
  virtual ~Replay() = default;

  /// Makes an update; the steps are 1, 2, 3, …. Gradients are clipped at every step.
  void add_step(const ReplayedStep& step);

  /// Returns the master weights after the updates so far.
  const std::vector<double>& master() const { return master_; }
  /// Returns for each element a bound on the absolute rounding error that a master in fp32 has after these updates. Of
  /// a whole matrix the root of the sum of its squares is the bound.
  const std::vector<double>& bound() const { return bound_; }
  /// Returns the Hessian of each element after the updates so far; empty with optimizers other than Sophia-G.
  virtual std::span<const Rounded> hessian() const { return {}; }

 protected:
  /// Updates the state and the masters.
  /// @param lr  of the parameter's group.
  /// @param grad  clipped; fp32 rounds the scale and the product.
  virtual void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) = 0;

  /// Sets mean ← mean + (1 − beta) (x − mean), as fp32 computes it with a rounded 1 − beta.
  static void add_to_mean(double beta, const Rounded& x, Rounded& mean);
  /// Sets master ← master (1 − lr · decay) − lr · direction.
  void move(size_t element, double lr, double decay, const Rounded& direction);

  const ParameterSpec& spec() const { return spec_; }
  const OptimizerConfig& config() const { return config_; }
  double weight_decay() const { return weight_decay_; }

  static constexpr double kUnit = 0x1p-24;
  std::vector<double> master_, bound_;

 private:
  ParameterSpec spec_;
  OptimizerConfig config_;
  double lr_scale_ = 1, weight_decay_ = 0;
};

/// Returns the replay of a parameter with the optimizer of its group. Null if what QK-clip multiplies it by is not
/// recorded (optimizer.qk_clip, for queries and keys).
std::unique_ptr<Replay> make_replay(const RunConfig& config, const ParameterSpec& spec,
                                    const std::vector<float>& master);

}  // namespace athanor::inline verify
