#pragma once
// One layer of the decoder: norm → attention → + → norm → feed-forward → +, and what of it is computed again in
// backward.

#include <memory>
#include <vector>

#include "model/attention_block.h"
#include "model/feed_forward.h"
#include "ops/norm.h"
#include "parallel/recompute.h"

namespace athanor {

/// The residual stream, and the branch that is still to be added to it: the next norm does both in one pass.
struct Residual {
  Tensor x, branch;  ///< [B, T, D]; branch undefined: nothing to add

  Tensor sum() const { return branch.defined() ? x + branch : x; }
};

/// RMSNorm with a scale, or LayerNorm without (an undefined weight).
struct Norm {
  Weight weight;
  double eps = 0;

  Tensor of(const Tensor& x) const;
  ops::NormedSum of(const Residual& residual) const;
};

/// What the layers of one forward share.
struct LayerContext {
  ops::Rotation rotation;
  ops::DocumentLengths documents;
  RecomputeKinds recompute;
  moe::BatchPosition position;
};

class Layer {
 public:
  /// @param index  of the layer in the model.
  Layer(const ModelConfig& model, const ParameterStore& parameters, int64_t index,
        const moe::RoutingPolicy& routing = {});

  FeedForward& feed_forward() { return feed_forward_; }

  /// A sparse layer in training appends its routing to `routings`; null in evaluation, which keeps nothing.
  /// The layer must stay where it is until backward is done.
  Residual forward(const Residual& in, const std::shared_ptr<const LayerContext>& context,
                   std::vector<moe::Routing>* routings) const;

  /// Generation: new tokens after those in the cache.
  Residual forward_cached(const Residual& in, const ops::Rotation& rotation, KvCache& cache) const;

 private:
  Tensor attend(const Tensor& normed, const std::shared_ptr<const LayerContext>& context, bool recompute) const;
  Tensor feed(const Tensor& normed, const moe::BatchPosition& position, bool recompute,
              std::vector<moe::Routing>* routings, const moe::Choices* saved) const;
  Residual forward_parts(const Residual& in, const std::shared_ptr<const LayerContext>& context,
                         const RecomputeKinds& recompute, std::vector<moe::Routing>* routings,
                         const moe::Choices* saved) const;

  Norm input_norm_, post_attention_norm_;
  AttentionBlock attention_;
  FeedForward feed_forward_;
};

/// The norm of a model whose weight has this name.
Norm make_norm(const ModelConfig& model, const ParameterStore& parameters, const std::string& name);

}  // namespace athanor
