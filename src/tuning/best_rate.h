#pragma once
// The best learning rate of a grid, and how it changes with the width of a model. Rates are compared by their
// logarithms: an uncertainty is a factor, by which a rate may be multiplied or divided.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::inline tuning {

/// What a short run at one rate ended with.
struct RateLosses {
  double lr = 0;
  std::vector<double>
      losses;  ///< those that its last steps saw, the same batches at every rate; not finite if it diverged

  /// Returns their mean; infinity if one is not finite.
  double mean() const;
};

struct BestRate {
  double lr = 0;
  double log_error = 0;  ///< standard deviation of the natural logarithm of lr
  double loss = 0;       ///< at the best rate of the grid
  int edge = 0;          ///< −1: no rate of the grid is lower than the best one; 1: none is higher; 0: both are there
};

/// Finds the minimum of the parabola through the best rate of the grid and its two neighbours, over the logarithm of
/// the rate.
///
/// Its uncertainty follows from the curvature and from the noise of the loss: for both neighbours the standard error of
/// the mean difference to the best rate, batch by batch, so that what all rates find hard or easy cancels. It is never
/// more than that of a rate that lies anywhere between the neighbours: half of their distance / sqrt(3). That is what
/// remains if a neighbour diverged or is missing. The noise of another seed is not in it.
/// @param grid  at least one rate, in increasing order, all with the same number of losses; one of them finite.
BestRate best_rate(const std::vector<RateLosses>& grid);

struct WidthRate {
  int64_t width = 0;
  BestRate best;
};

/// What the best rates of several widths mean for another width.
struct Transfer {
  double exponent = 0, exponent_error = 0;  ///< the best rate changes as width^exponent; NaN for one width
  bool stays = false;  ///< the exponent is 0 within two standard deviations, or the change is within a step of the grid
  double lr = 0;       ///< at the target
  double log_error = 0;  ///< standard deviation of its natural logarithm
};

/// Fits best rates over widths, weighted by their uncertainties (one of at least 1%). With `scaled`, the rate at the
/// target is the weighted mean, since optimizer.scaling is to make it the same everywhere; else it is extrapolated
/// along the line through the logarithms. The uncertainty is that of the weights, or larger by as much as the rates
/// scatter more than these allow.
/// @param rates      at least one, none at an edge.
/// @param grid_step  the factor between neighbouring rates of the grid.
Transfer transfer_to(int64_t target, const std::vector<WidthRate>& rates, bool scaled, double grid_step);

}  // namespace athanor::inline tuning
