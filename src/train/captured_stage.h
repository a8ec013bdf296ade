#pragma once
// Forward and backward of a whole model on one device as one launch for each microbatch (train.cuda_graphs).

#include <map>
#include <optional>

#include "config/run_config.h"
#include "ops/graph.h"
#include "parallel/observer.h"
#include "parallel/stage.h"

namespace athanor::inline train {

/// Stands in for the only stage of a model. Of microbatches of one shape it runs the first few as they are, then
/// records one (ops/graph.h), and from then on launches what was recorded. The bits are those of the stage.
///
/// A microbatch runs without a graph while there are observers, and after a recording has failed. It also does if all
/// graphs that are allowed are in use for other shapes. The last two reasons are logged, each once.
class CapturedStage : public Stage {
 public:
  /// @param observers  those of the stage; may be null. All arguments must outlive this.
  CapturedStage(Stage& stage, at::Device device, const Observers* observers);

  void expect(int64_t batch, int64_t seq_len) override;
  Tensor forward(int microbatch, Tensor x, const Labels* labels) override;
  Tensor backward(int microbatch, Tensor dy, GradientReducer* sums) override;
  LossParts take_parts(int microbatch) override;
  void drop(int microbatch) override { stage_.drop(microbatch); }
  Tensor forward_only(Tensor x, const Labels* labels) override { return stage_.forward_only(std::move(x), labels); }
  TokenScores score(Tensor x, const Labels* labels) override { return stage_.score(std::move(x), labels); }

 private:
  // What the recorded work depends on other than the contents of tensors.
  struct Key {
    int64_t batch, seq_len, num_packed, num_targets;
    double loss_scale, aux_scale, z_scale;
    auto operator<=>(const Key&) const = default;
  };
  struct Captured {
    int64_t num_seen = 0, last_seen = 0;
    Tensor input;     // Labels::packed of the microbatch that is launched
    LossParts parts;  // what the graph computes; only their shapes and types are read
    Tensor numbers;   // their values in one tensor (ops/transfer.h)
    std::optional<ops::Graph> graph;
  };
  Captured& captured_for(const Key& key);
  bool may_capture(const Key& key);
  bool capture(Captured& captured, Tensor x, const Labels& labels);
  LossParts parts_of(const Captured& captured) const;

  Stage& stage_;
  at::Device device_;
  const Observers* observers_;
  std::map<Key, Captured> captured_;
  std::map<int, LossParts> launched_;  // the parts of microbatches that were launched
  int64_t num_forwards_ = 0;
  bool failed_ = false, told_of_observers_ = false, told_of_shapes_ = false;
};

/// Returns a CapturedStage if train.cuda_graphs is set; null if it is not, or if the stage can't be recorded, for which
/// it logs the reason.
std::unique_ptr<Stage> capture_if_wanted(const RunConfig& config, Stage& stage, at::Device device, int num_ranks,
                                         const Observers* observers);

}  // namespace athanor::inline train
