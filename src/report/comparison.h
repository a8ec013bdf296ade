#pragma once
// Runs compared at the same number of training tokens.

#include <optional>
#include <vector>

#include "report/run_record.h"

namespace athanor::inline report {

/// AuroraGPT's runs with equal settings differ by about this much at the same tokens ("δ ≈ 0.02, within run-to-run
/// noise"), so a smaller difference tells nothing.
inline constexpr double kLossNoise = 0.02;

struct MeanLoss {
  double value = 0;  ///< nats a token: the mean over the steps of a window that ends at the tokens
  double error = 0;  ///< its standard error, from the means of ten parts of the window without their trend
};

struct MatchedLosses {
  double tokens = 0;
  std::vector<std::optional<MeanLoss>> runs;      ///< none: the run has no steps there
  std::vector<std::optional<double>> validation;  ///< the last validation loss up to there
};

/// Returns the losses at a quarter, a half, three quarters and all of the tokens that every run has seen; none if the
/// tokens of a run are not known. The window is a twentieth of these tokens.
std::vector<MatchedLosses> match_losses(const std::vector<RunRecord>& runs);

/// Returns whether a difference of two means is more than noise: more than `kLossNoise`, and more than two standard
/// errors.
bool is_difference(const MeanLoss& a, const MeanLoss& b);

}  // namespace athanor::inline report
