#include <cmath>

#include "verify/replay/replay.h"

namespace athanor::inline verify {
namespace {

class SgdReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  std::vector<Rounded> momentum_;
};

// In a product with the factor of momentum, the factor and the product are rounded; so is each sum.
void SgdReplay::update(const ReplayedStep&, double lr, const std::vector<Rounded>& grad) {
  const double keep = config().momentum;
  const auto add_kept = [&](const Rounded& g, const Rounded& m) {
    const double kept = keep * m.value, sum = g.value + kept;
    return Rounded{sum, g.error + keep * m.error + kUnit * (2 * std::abs(kept) + std::abs(sum))};
  };
  momentum_.resize(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    momentum_[i] = add_kept(grad[i], momentum_[i]);
    move(i, lr, weight_decay(), config().nesterov ? add_kept(grad[i], momentum_[i]) : momentum_[i]);
  }
}

}  // namespace

std::unique_ptr<Replay> make_sgd_replay(const RunConfig& config, const ParameterSpec& spec,
                                        const std::vector<float>& master) {
  return std::make_unique<SgdReplay>(config, spec, master);
}

}  // namespace athanor::inline verify
