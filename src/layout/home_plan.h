#pragma once
// Which rank computes each whole matrix of a pipeline stage, and what the ranks send each other so that it can: for
// optimizers such as Muon, whose update of a matrix needs all of it, although shards cut matrices anywhere and tensor
// ranks hold parts of them. Arithmetic on a layout, without communication.
//
// A matrix is a parameter or one expert of a stack. Its home is one of the ranks that hold a part of it: data rank d
// and tensor rank t of the stage. Matrices get homes by longest-processing-time-first (Graham 1969): the most work
// first, each to the rank with the least so far; work is max(m, n) · min(m, n)².
//
// Values travel in two steps each way. Over kData, the owners of pieces send them to data rank d of their own tensor
// rank, which then has that tensor rank's part. Over kTensor, the tensor ranks of data rank d send their parts to t.
// The results take the same way back, to every rank that owns a copy.

#include <array>
#include <functional>
#include <vector>

#include "layout/shards.h"

namespace athanor::inline layout {

/// Matrices to be computed, and the ranks that could do it.
struct HomeJob {
  double work = 0;
  size_t candidates = 0;  ///< which of the lists of candidates
};
/// Returns the rank of each job. Of equal work the earlier job comes first, of equal load the earlier candidate.
/// @param candidates  lists of ranks from 0; none is empty.
std::vector<int> assign_homes(const std::vector<HomeJob>& jobs, const std::vector<std::vector<int>>& candidates);

/// The work of an m × n matrix.
double home_work(int64_t rows, int64_t columns);

/// The part of a matrix that a tensor rank holds, along the dim that is cut.
struct TensorPart {
  int64_t begin = 0, size = 0;
  bool operator==(const TensorPart&) const = default;
};
/// Returns the first dim of a parameter that is one of its matrices' own: 1 for stacked experts, else 0.
size_t first_matrix_dim(const BucketEntry& entry);
/// Which dim of the matrices of a parameter tensor ranks cut: 0 (rows) or 1 (columns); −1: each holds them whole.
int cut_dim_of_matrix(const BucketEntry& entry);
/// Returns the part of its matrices that each of `ranks` tensor ranks holds, by the rule of held_parameters; empty if
/// they are not cut.
std::vector<TensorPart> parts_of_tensor_ranks(const BucketEntry& entry, int ranks);

/// A whole matrix of which this rank holds a part.
struct HomeMatrix {
  const BucketEntry* entry = nullptr;
  FlatRange held;  ///< this rank's part, in flat memory
  int64_t rows = 0, columns = 0;
  int cut_dim = -1;
  std::vector<TensorPart> parts;  ///< by tensor rank; one if nothing is cut
  int home_data = 0, home_tensor = 0;

  /// Returns true if the home takes the part of this tensor rank: of equal parts one is enough.
  bool takes_part_of(int tensor_rank) const;
  /// Returns rows and columns of the part that a tensor rank holds.
  std::array<int64_t, 2> part_shape(int tensor_rank) const;
};

/// One message between ranks of a group. Messages between two ranks are in the order of the plan's lists.
struct HomeTransfer {
  int from = 0, to = 0;  ///< indices in kData or kTensor
  size_t matrix = 0;     ///< index in HomePlan::matrices
  FlatRange range = {};  ///< kData: the piece of flat memory; kTensor: none, it is the whole part of the rank whose
                         ///< part it is: the sender's on the way there, the receiver's on the way back
};

/// What one rank computes, sends and receives.
struct HomePlan {
  std::vector<HomeMatrix> matrices;
  std::vector<HomeTransfer> to_home_data, to_home_tensor, from_home_tensor, from_home_data;  ///< with this rank
  int data_index = 0, tensor_index = 0;
  /// The work of each rank of the stage: that of data rank d and tensor rank t of T is at d · T + t.
  std::vector<double> work;

  bool is_home(const HomeMatrix& matrix) const {
    return matrix.home_data == data_index && matrix.home_tensor == tensor_index;
  }
  /// Returns the elements of the matrices that this rank computes.
  int64_t home_elements() const;
};

struct HomePlanInput {
  const std::vector<BucketEntry>& table;  ///< as laid out by lay_out_buckets; the plan keeps pointers to its entries
  const std::vector<Bucket>& buckets;
  const Layout& layout;
  int rank = 0;
  ShardingKind sharding = ShardingKind::kNone;
  std::function<bool(const BucketEntry&)> selects;  ///< parameters with at least two dims; the same on all ranks
};
/// Every rank of a stage gets the same homes. Time: the matrices of the stage times the ranks that hold each.
HomePlan plan_homes(const HomePlanInput& input);

}  // namespace athanor::inline layout
