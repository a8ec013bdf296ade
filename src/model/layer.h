#pragma once
// One layer of the decoder: norm → attention → norm → + → norm → feed-forward → norm → +, of which each norm may be
// missing, with selective recomputation in backward. In a parallel layer the feed-forward reads what attention reads.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "blocks/attention.h"
#include "blocks/norm.h"
#include "blocks/sparse.h"
#include "parallel/observer.h"
#include "parallel/recompute.h"
#include "parallel/tensor_parallel.h"

namespace athanor::inline model {

/// The data that the layers of one forward share.
struct LayerContext {
  Rotations rotations;
  ops::DocumentLengths documents;
  RecomputeKinds recompute;
  moe::BatchPosition position;
  int64_t batch = 1;                                     ///< B; read only under sequence parallelism
  Watch watch = {};                                      ///< the observers in training
  std::shared_ptr<const ops::TokenTree> tree = nullptr;  ///< Labels::tree
};

class Layer {
 public:
  /// @param routing  rules of its router in training.
  /// @param ranks    share each of its matrices; their group must outlive this.
  Layer(const LayerSpec& spec, const ParameterStore& parameters, const moe::RoutingPolicy& routing = {},
        const TensorRanks& ranks = {});

  SparseBlock* sparse() { return std::get_if<SparseBlock>(&feed_forward_); }  ///< null in a dense layer
  const std::string& name() const { return name_; }                           ///< "model.layers.3"

  /// Runs the layer. Observers see the residual stream after the layer when its reader (the next layer, or the decoder
  /// after a stage's last layer) has added it up. The layer must not be moved until backward is done. Forward and
  /// backward are collective over tensor ranks, and in a sparse layer over the ranks that share its experts or, in
  /// training, a balance group.
  /// @param routings  in training; a sparse layer appends its routing. Null in evaluation, which keeps nothing.
  Residual forward(const Residual& in, const std::shared_ptr<const LayerContext>& context,
                   std::vector<moe::Routing>* routings) const;

  /// For generation: runs the layer on new tokens, whose keys and values are added to the cache. Collective as forward.
  Residual forward_cached(const Residual& in, const CachedPass& pass, const KvCache& cache) const;
  KvCache make_cache(int64_t slots, int64_t capacity) const { return attention_.make_cache(slots, capacity); }

 private:
  using Context = std::shared_ptr<const LayerContext>;
  using Phase = Observation::Phase;
  Tensor attend(ops::NormedSum in, const Context& context, const RecomputeKinds& recompute, Phase phase) const;
  Tensor feed(ops::NormedSum in, const Context& context, const RecomputeKinds& recompute,
              std::vector<moe::Routing>* routings, const moe::Choices* saved) const;
  Tensor feed_forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings,
                      const moe::Choices* saved = nullptr, const moe::BatchPosition& position = {}) const;
  /// What the feed-forward reads, and the sum to which its result is added.
  struct Between {
    ops::NormedSum in;
    Tensor last_sum;
  };
  /// @param sum, branch  what attention read, before its norm, and returned, after its norm.
  Between between(const Tensor& sum, const Tensor& branch) const;
  Tensor leave_feed_forward(const Tensor& y) const;
  void forget_read(const std::optional<NormBlock>& norm, const Tensor& sum, const Tensor& read, const Tensor& consumer,
                   int64_t batch) const;
  Residual forward_parts(const Residual& in, const Context& context, const RecomputeKinds& recompute,
                         std::vector<moe::Routing>* routings, const moe::Choices* saved,
                         Phase phase = Phase::kForward) const;

  // Place names for observers; previous_ is the place of what the layer reads.
  std::string name_, previous_, attention_name_, feed_forward_name_;
  TensorRanks ranks_;
  bool is_parallel_;
  std::optional<NormBlock> attention_norm_, attention_out_norm_, feed_forward_norm_, feed_forward_out_norm_;
  AttentionBlock attention_;
  std::variant<FeedForwardBlock, SparseBlock> feed_forward_;
};

}  // namespace athanor::inline model
