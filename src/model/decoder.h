#pragma once
// The decoder: one forward pass for every family, as a pipeline stage.
//
// embedding → (norm → attention → + → norm → feed-forward → +) × layers → norm → linear + cross entropy

#include <map>
#include <memory>
#include <vector>

#include "arch/inventory.h"
#include "model/layer.h"
#include "model/rotary.h"
#include "moe/balance_loss.h"
#include "parallel/stage.h"

namespace athanor {

/// The bucket table of a rank that holds part `expert_rank` of `expert_degree` equal parts of each layer's experts, and
/// everything else whole. One part: the whole model.
std::vector<BucketEntry> make_bucket_entries(const ModelConfig& model, int64_t expert_rank = 0,
                                             int64_t expert_degree = 1);

struct DecoderOptions {
  moe::AuxScope aux_scope = moe::AuxScope::kSequence;
  int64_t loss_chunk_tokens = 1024;
  moe::RoutingPolicy routing = {};
  RecomputeKinds recompute = {};
  std::shared_ptr<moe::Dispatch> dispatch = nullptr;  ///< of layers whose experts are shared among ranks; null: whole
  StageHooks hooks = {};
};

class Decoder : public Stage {
 public:
  /// `parameters` must outlive the decoder.
  Decoder(const ModelConfig& model, const ParameterStore& parameters, DecoderOptions options);

  Tensor forward(int microbatch, Tensor tokens_BT, const Labels* labels) override;
  Tensor backward(int microbatch, Tensor dy) override;
  LossParts take_parts(int microbatch) override;
  TokenScores score(Tensor tokens_BT, const Labels* labels) override;

  /// Logits [B, T, V] of a whole instance; for tests and small inputs.
  Tensor logits(const Tensor& tokens_BT, const ops::DocumentLengths& documents = {}) const;

  /// Generation: the last position's logits [B, V] after appending tokens [B, T] to the caches.
  Tensor next_logits(const Tensor& tokens_BT, std::vector<KvCache>& caches) const;
  std::vector<KvCache> make_caches(int64_t batch, int64_t capacity) const;

  /// aux_scope "global": shares of choices per token of the previous step, [sparse layers, experts].
  void set_previous_share(Tensor share) { previous_share_ = std::move(share); }
  const Tensor& previous_share() const { return previous_share_; }
  /// Of all sparse layers, [sparse layers, experts] fp32, added to scores for choosing only; undefined: none. Held, not
  /// copied: changing it in place changes the routers.
  void set_router_bias(const Tensor& bias_LE);
  const Tensor& router_bias() const { return router_bias_; }
  const ModelConfig& config() const { return model_; }

 private:
  // What backward starts from, and with which gradient.
  struct Pending {
    std::vector<Tensor> roots, grads;
    LossParts parts;
  };

  Tensor hidden(const Tensor& tokens_BT, const ops::DocumentLengths& documents, std::vector<moe::Routing>* routings,
                const moe::BatchPosition& position = {}) const;
  void enter(int64_t place, const Residual& residual) const;
  void add_router_losses(const std::vector<moe::Routing>& routings, const Labels& labels, int64_t seq_len,
                         Pending& pending);

  ModelConfig model_;
  Rotary rotary_;
  DecoderOptions options_;
  Weight embedding_, output_;
  Norm final_norm_;
  std::vector<Layer> layers_;
  Tensor previous_share_, router_bias_;
  std::map<int, Pending> pending_;
};

}  // namespace athanor
