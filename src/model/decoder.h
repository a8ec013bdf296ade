#pragma once
// The decoder: one forward pass for every model family, whole or cut between layers into pipeline stages.
//
// embedding → (norm → attention → + → norm → feed-forward → +) × layers → norm → linear + cross entropy

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <torch/csrc/autograd/edge.h>

#include "layout/holding.h"
#include "layout/stages.h"
#include "model/layer.h"
#include "model/rotary.h"
#include "moe/balance_loss.h"
#include "parallel/stage.h"
#include "parallel/tensor_parallel.h"
#include "parallel/weight_gatherer.h"

namespace athanor::inline model {

/// Returns the bucket table, not yet laid out, of a rank that holds part `expert_rank` (from 0) of `expert_degree`
/// equal parts of each layer's experts, and everything else whole; by default the whole model's.
std::vector<BucketEntry> make_bucket_entries(const ModelConfig& model, int64_t expert_rank = 0,
                                             int64_t expert_degree = 1);

/// The defaults are those of a whole model on one rank.
struct DecoderOptions {
  AuxScope aux_scope = AuxScope::kSequence;
  int64_t loss_chunk_tokens = 1024;  ///< tokens whose logits are held at a time
  moe::RoutingPolicy routing = {};
  RecomputeKinds recompute = {};
  std::shared_ptr<moe::Dispatch> dispatch = nullptr;  ///< for experts that ranks share; null: all experts are here
  TensorRanks tensor = {};                            ///< ranks that share each matrix
  std::optional<StageLayers> stage = {};              ///< the stage's layers; none: the whole model
  WeightGatherer* gatherer = nullptr;    ///< brings the weights that forward reads from other ranks; null: all are here
  const Observers* observers = nullptr;  ///< see training only; null: none. They must outlive the decoder
};

class Decoder : public Stage {
 public:
  /// `parameters`, which hold at least this stage's, must outlive the decoder. @throws ConfigError if the heads cannot
  /// be divided among the tensor ranks.
  Decoder(const ModelConfig& model, const ParameterStore& parameters, DecoderOptions options);

  void expect(int64_t batch, int64_t seq_len) override;
  Tensor forward(int microbatch, Tensor x, const Labels* labels) override;
  Tensor backward(int microbatch, Tensor dy, GradientReducer* sums) override;
  LossParts take_parts(int microbatch) override;
  void drop(int microbatch) override { pending_.erase(microbatch); }
  Tensor forward_only(Tensor x, const Labels* labels) override;
  TokenScores score(Tensor x, const Labels* labels) override;

  /// For aux_scope "global": sets the choices of each expert per token in the previous step, [sparse layers of the
  /// model, experts] fp32; without a call they are k / E. The tensor is held, not copied.
  void set_previous_share(const Tensor& share);
  /// Sets the biases of all sparse layers of the model, [sparse layers, experts] fp32, added to scores for choosing
  /// only. The tensor is held, not copied: changing it in place changes the routers.
  void set_router_bias(const Tensor& bias_LE);

  // For generation, on any layout (cached_decoder.cpp).

  /// Returns memory for keys and values of this stage's layers, one cache for each.
  std::vector<KvCache> make_caches(int64_t slots, int64_t capacity) const;
  /// Runs the stage on new tokens of texts and adds their keys and values to the caches, which must have room for them.
  /// Collective over tensor ranks, and in sparse layers over the ranks that share experts, which may have no tokens.
  /// The host does not wait.
  /// @param x  token ids [1, N] of the host on the first stage, else hidden states [1, N, D] of the stage before.
  /// @return on the last stage the logits [R, V] of each text's last token, equal on all tensor ranks; else hidden
  ///         states for the next stage.
  Tensor forward_cached(const Tensor& x, const NewTokens& tokens, const std::vector<KvCache>& caches) const;

  // The following functions are for a decoder that is the whole model, on one rank.

  /// Returns the logits [B, T, V] of all positions, in the compute type; for tests and small inputs.
  Tensor logits(const Tensor& tokens_BT, const ops::DocumentLengths& documents = {}) const;

  const ModelConfig& config() const { return model_; }

 private:
  // The tensors from which backward starts, with their gradients. The values of the roots are not kept: they have been
  // sent on.
  struct Pending {
    Tensor input;  // input of stages that do not embed; backward returns its gradient
    torch::autograd::edge_list roots;
    std::vector<Tensor> grads;
    LossParts parts;
  };
  static void add_root(Pending& pending, const Tensor& root, Tensor grad);

  int64_t first_forward_index() const { return stage_.embeds ? 0 : 1 + stage_.first; }
  Tensor embed(const Tensor& tokens_BT, const Tensor& positions, const Watch& watch = {}) const;
  Tensor embed(const Tensor& tokens_BT, const Labels& labels, const Watch& watch = {}) const;
  Tensor position_vectors(const Tensor& positions) const;
  Residual run_layers(Residual residual, const Labels& labels, std::vector<moe::Routing>* routings,
                      const Watch& watch = {}) const;
  Tensor add_up(const Residual& residual, const Watch& watch) const;
  Tensor final_hidden(const Residual& residual, int64_t batch, const Watch& watch = {}) const;
  void enter(int64_t forward_index, const Residual& residual) const;
  Tensor loss_sum(const Residual& residual, const Labels& labels, const Watch& watch) const;
  void add_router_losses(const std::vector<moe::Routing>& routings, const Labels& labels, int64_t seq_len,
                         Pending& pending);
  CachedPass cached_pass(const NewTokens& tokens, const Tensor& x, Tensor& ids_N) const;
  Tensor cached_logits(const Residual& residual, const CachedPass& pass) const;
  RouterCounts count_of_model(const std::vector<moe::Routing>& routings) const;

  ModelConfig model_;
  mutable RotationsOfModel rotations_;  // keeps what it has sent
  DecoderOptions options_;
  StageLayers stage_;
  at::ScalarType compute_type_;
  at::Device device_;
  int64_t first_sparse_ = 0, num_sparse_ = 0;     // the range of the model's sparse layers that are here
  std::string embedding_name_, final_norm_name_;  // places for observers
  double embedding_scale_, output_cap_;
  Weight embedding_, positions_, output_;  // positions_: undefined if the model rotates queries and keys
  NormBlock final_norm_;
  std::vector<Layer> layers_;
  Tensor previous_share_;  // share for the layers here
  std::map<int, Pending> pending_;
  GradientReducer* sums_ = nullptr;  // during a backward, see there
};

}  // namespace athanor::inline model
