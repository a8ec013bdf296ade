#pragma once
// Measures what rounding does to an update of each parameter, while the update is made.

#include <cstdint>
#include <vector>

#include "train/train_state.h"
#include "train/update_metrics.h"
#include "train/update_observer.h"

namespace athanor::inline train {

/// The sums of one step on one rank. It compares masters and weights of each block before and after its update, reads
/// the optimizers' state after it, and changes nothing. Each element of the model is counted by the rank whose
/// canonical part has it (ShardPlan::canonical); counts are whole numbers in fp64, so that no layout changes them.
/// Everything is done with operations of libtorch where the memory is: on a device the sums come to the host with the
/// numbers of the step.
/// Memory: that of count_update_sums_bytes, for one block of an update at a time: for one of kUpdateBlock elements in
/// bf16 28 MiB of copies, and at most 64 MiB of intermediate results.
class UpdateSums : public UpdateObserver {
 public:
  /// @param state  must outlive this.
  /// @param also   another observer of the same update, which sees the same calls; null: none.
  UpdateSums(const TrainState& state, UpdateObserver* also);

  void before_update(FlatRange range) override;
  void after_update(FlatRange range) override;
  std::vector<Tensor*> numbers() override;

  /// Returns the numbers of every parameter of the model, in the order of its inventory. To be called after an update
  /// that was applied, on every rank. Collective over the world: one sum of 8 numbers for each parameter.
  /// @param lr  learning rate of the step: parameters whose own rate is 0 have no update that could be lost.
  std::vector<ParameterUpdate> take(double lr);

 private:
  struct Piece {  // canonical elements of one parameter
    FlatRange range;
    int64_t row;
    const Optimizer* optimizer;
  };
  struct Before {
    Tensor master, weight, has_update;
  };
  void add(int64_t row, int64_t column, const Tensor& sum);
  void read_state(const Piece& piece, FlatRange range);

  const TrainState& state_;
  UpdateObserver* also_;
  std::vector<Piece> pieces_;   // in the order of flat memory
  std::vector<Before> before_;  // what the pieces of the present block were
  Tensor sums_;                 // [parameters, columns] fp64, where the model is until they are fetched
};

/// Returns the most that UpdateSums holds for a time in an update, by the bytes of an element of a block. Copies are
/// the master (4; in fp32 that is the weight), the bf16 weight (2), and whether there is an update (1). Results, of the
/// largest piece of the block, are in bf16 the master (4), how far it moved (4), and this in fp64 to be summed (8). In
/// fp32 they are which moments are normal and which underflow (2), and the latter in int64 to be summed (8).
double count_update_sums_bytes(const ParameterStore& parameters, const ShardPlan& plan);

}  // namespace athanor::inline train
