#pragma once
// What an optimizer's update costs a rank in a step, in addition to its state: what it sends, and memory that comes and
// goes.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "layout/home_plan.h"
#include "layout/product_scratch.h"
#include "layout/traffic.h"

namespace athanor::inline layout {

struct UpdateCost {
  /// LAMB: the squared norms of all matrices of the model, 16 bytes for each, over kModel and then over kData. Muon:
  /// the exchanges of the home plan over kData and over kTensor.
  std::vector<RankTraffic> sent;
  /// Muon, fp32: the matrices that the rank computes with the parts that it passes on, and what it sends and receives
  /// in the largest exchange, and in all of them: on a device the host queues the next one before the last has ended,
  /// and their memory is not free before that.
  double held_bytes = 0, exchange_bytes = 0, all_exchanges_bytes = 0;
  /// Muon: what the rank orthogonalizes while it holds them, as numbers of matrices by shape (rows, columns).
  std::map<std::pair<int64_t, int64_t>, int64_t> computed = {};
  /// Second backwards in a step: 1 / optimizer.hessian_interval with Sophia-G, else 0. Each sends what the step's
  /// backward and forward send, without weights.
  double second_backwards = 0;
};

/// Returns the cost for a rank of the world.
/// @param table    what the rank holds, as laid out by lay_out_buckets.
/// @param buckets  those of the table.
/// Time: with Muon that of plan_homes.
UpdateCost count_update_cost(const RunConfig& config, const Layout& layout, int rank,
                             const std::vector<BucketEntry>& table, const std::vector<Bucket>& buckets);

/// Returns the most that the update of this cost holds at once, in bytes: with Muon the matrices and parts that stay
/// from the first exchange to the last and, on a CPU, the larger of an exchange and of the iteration's scratch; on a
/// device all exchanges and the scratch. 0 for other optimizers.
double count_update_bytes(const UpdateCost& cost, const OptimizerConfig& config, Multiplier multiplier);
/// The same for a rank of the world, whose parameters are laid out as in training. Time: that of count_update_cost with
/// Muon, none without.
double count_update_bytes(const RunConfig& config, const Layout& layout, int rank, Multiplier multiplier);

// The memory that Newton and Schulz's iteration takes for a time (ops/newton_schulz.h), in addition to its matrices.

/// Which iteration: the type of its products, and who multiplies.
struct Orthogonalizer {
  bool bf16 = true;  ///< optimizer.newton_schulz_dtype; else fp32
  bool on_device = false;
};

/// Returns the bytes that ops::orthogonalize takes for a stack of `batch` matrices. On a CPU what the products
/// themselves need (layout/product_scratch.h) is not counted.
double orthogonal_scratch(int64_t batch, int64_t rows, int64_t columns, Orthogonalizer how);

}  // namespace athanor::inline layout
