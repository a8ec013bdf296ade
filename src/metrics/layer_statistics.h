#pragma once
// Statistics of each layer in the steps that are to show them: an observer that is in the list for these steps only.

#include <memory>
#include <vector>

#include "metrics/layer_metrics.h"
#include "train/train_state.h"
#include "train/update_observer.h"

namespace athanor::inline metrics {

/// The statistics of one step on one rank. They observe the step while its gradients are computed, read the summed
/// gradients, and then observe the update. Each element of the model is counted by the rank whose canonical part has it
/// (ShardPlan::canonical), and each activation by one tensor rank. So sums over all ranks are those of one rank, up to
/// the rounding of fp64. On a device everything is summed there, and comes to the host with the numbers of the step.
class LayerStatistics : public Observer, public UpdateObserver {
 public:
  /// @param state       must outlive this.
  /// @param histograms  also make histograms.
  LayerStatistics(const TrainState& state, bool histograms);

  void observe(const Observation& observation) override;
  bool wants_attention_logits() const override { return true; }
  /// To be called when the gradients have been summed over ranks, before the update.
  void read_gradients();
  void before_update(FlatRange range) override;
  void after_update(FlatRange range) override;
  std::vector<Tensor*> numbers() override;
  /// Returns the statistics of the whole step. Collective over the world: a sum of 4 numbers for each layer (with
  /// histograms some 400), and a maximum of one.
  /// @param tokens  number of tokens of the step.
  LayerMetrics take(int64_t tokens);

 private:
  // Canonical elements of one parameter, and the row of what the parameter belongs to.
  struct Piece {
    FlatRange range;
    int64_t row;
  };
  struct Columns;
  void add_values(int64_t row, int64_t first_column, const Tensor& values);
  double* cell(int64_t row, int64_t column);

  const TrainState& state_;
  bool histograms_, counts_activations_;
  int64_t num_layers_;
  std::vector<Piece> pieces_;        // in the order of flat memory
  Tensor sums_;                      // [rows, columns] fp64, see Columns; where the model is until they are fetched
  std::vector<Tensor> activations_;  // by layer, fp64: sum of squares; undefined if the layer is elsewhere
  std::vector<Tensor> logits_;       // by layer, fp64: the largest so far
  std::vector<Tensor> before_;       // master of the present block's canonical elements, for each piece
};

}  // namespace athanor::inline metrics
