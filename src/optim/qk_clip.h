#pragma once
// QK-clip: after an update, it scales down the query and key weights of each head whose largest attention logit in the
// step exceeded a threshold. With the new weights, the same inputs would give the threshold. Source: Kimi Team 2025
// (Kimi K2, MuonClip).
//
// With γ = min(1, threshold / largest logit) of a head, its query and key weights are multiplied by √γ each. If several
// query heads share a key head, only the query weights are, by γ: scaling the key would change the other heads' logits.
// Moments stay as they are. A model that normalises queries and keys has no use for it (layout/group_checks.h).

#include "config/families.h"
#include "ops/update.h"
#include "optim/largest_logit.h"
#include "parallel/observer.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// As an observer it takes the largest logits of the step's microbatches.
class QkClip : public Observer {
 public:
  /// `store` and `shards` must outlive this.
  QkClip(const ModelConfig& model, double threshold, ParameterStore& store, const ShardPlan& shards);

  bool wants_attention_logits() const override { return true; }
  void begin_gradients() override;
  void observe(const Observation& observation) override;

  /// Finds the factors of this rank's heads, and the numbers of the step. Collective over kData: an all-reduce of a
  /// number for each layer and head. Then collective over kModel: a gather of three numbers of each rank.
  void begin();
  /// Scales the owned elements of `range` of flat memory, after they were updated. Not collective. On a device nothing
  /// changes if `there` refuses the step.
  void apply(FlatRange range, const ops::OnDevice& there);

  /// The largest logit of each layer of the model and head of this rank, in the last step: fp32 [layers, heads], −∞ for
  /// layers of other ranks. Over all data ranks after begin().
  const Tensor& largest() const { return largest_; }
  /// The numbers that begin() found, the same on every rank, where the parameters are: fp64 [3], for largest_logit_of.
  const Tensor& numbers() const { return numbers_; }

 private:
  void share_numbers(const Tensor& is_clipped);
  void scale(const BucketEntry& entry, FlatRange piece, const Tensor& factors, const ops::OnDevice& there);

  const FamilyNames& names_;
  ParameterStore& store_;
  const ShardPlan& shards_;
  double threshold_;
  int64_t head_dim_;
  bool shares_keys_;
  Tensor largest_, query_factors_, key_factors_;  // [layers, heads]
  Tensor numbers_;
};

/// Returns the numbers of a step from QkClip::numbers on the host.
LargestLogit largest_logit_of(const Tensor& numbers);

}  // namespace athanor::inline optim
