#include <algorithm>
#include <cmath>

#include "verify/replay/replay.h"
#include "verify/replay/rounded_iteration.h"

namespace athanor::inline verify {
namespace {

/// Muon, of the whole matrix or of each expert's.
class MuonReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  std::vector<Rounded> momentum_;
};

// A matrix's error has the deviation that draws show. One of four independent numbers, which the smallest matrices
// have, is beyond four times that in 4e-13 of all cases (χ² with four degrees of freedom above 64).
constexpr double kDeviations = 4;

double scale_of(MuonScale rule, double rows, double columns) {
  return rule == MuonScale::kMoonshot ? 0.2 * std::sqrt(std::max(rows, columns))
                                      : std::sqrt(std::max(1.0, rows / columns));
}

void MuonReplay::update(const ReplayedStep&, double lr, const std::vector<Rounded>& grad) {
  const auto& shape = spec().shape;
  Matrices directions{spec().is_expert() ? shape[0] : 1, shape.at(shape.size() - 2), shape.back(), {}, {}};
  const double keep = config().momentum;
  momentum_.resize(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    Rounded& m = momentum_[i];
    add_to_mean(keep, grad[i], m);
    Rounded direction = m;
    if (config().nesterov) {
      // g + keep (m − g): the difference, the factor, the product and the sum are rounded.
      const double ahead = keep * (m.value - grad[i].value);
      direction.value = grad[i].value + ahead;
      direction.error =
          keep * m.error + (1 - keep) * grad[i].error + kUnit * (3 * std::abs(ahead) + std::abs(direction.value));
    }
    directions.values.push_back(direction.value);
    directions.errors.push_back(direction.error);
  }
  const RoundedResult result = orthogonalize_rounded(directions, config());
  const auto rows = static_cast<double>(directions.rows), columns = static_cast<double>(directions.columns);
  const double scale = scale_of(config().muon_scale, rows, columns);
  const auto of_matrix = static_cast<size_t>(directions.rows * directions.columns);
  for (size_t i = 0; i < grad.size(); ++i) {
    // The error of a matrix, in equal parts; the scale and its product are rounded.
    const double error = kDeviations * result.deviations[i / of_matrix] / std::sqrt(rows * columns);
    const double x = result.values[i];
    move(i, lr, weight_decay(), {scale * x, scale * (error + 2 * kUnit * std::abs(x))});
  }
}

}  // namespace

std::unique_ptr<Replay> make_muon_replay(const RunConfig& config, const ParameterSpec& spec,
                                         const std::vector<float>& master) {
  return std::make_unique<MuonReplay>(config, spec, master);
}

}  // namespace athanor::inline verify
