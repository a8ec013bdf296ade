#include "model/decoder.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "base/fault.h"
#include "kernels/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear_cross_entropy.h"

namespace athanor {
namespace {

// Position of each token in its document (or its instance), [B, T].
Tensor positions_of(int64_t batch, int64_t seq_len, const ops::DocumentLengths& documents) {
  if (documents.empty()) return at::arange(seq_len, at::kLong).expand({batch, seq_len});
  Tensor positions = at::empty({batch, seq_len}, at::kLong);
  auto* position = positions.data_ptr<int64_t>();
  for (const auto& sequence : documents) {
    for (const int32_t length : sequence) {
      for (int32_t i = 0; i < length; ++i) *position++ = i;
    }
  }
  return positions;
}

int64_t count_targets(const Tensor& targets) {
  const Tensor ids = targets.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  return ids.numel() - std::count(id, id + ids.numel(), kernels::kNoTarget);
}

}  // namespace

std::vector<BucketEntry> make_bucket_entries(const ModelConfig& model, int64_t expert_rank, int64_t expert_degree) {
  ATHANOR_ASSERT(expert_rank >= 0 && expert_rank < expert_degree);
  std::vector<BucketEntry> entries;
  for (const auto& spec : make_inventory(model)) {
    const int64_t after_layers = 1 + model.num_hidden_layers;
    const int64_t place = spec.layer >= 0 ? 1 + spec.layer : spec.role == Role::kEmbedding ? 0 : after_layers;
    BucketEntry entry{spec.name,  spec.is_expert() ? "expert" : "dense",
                      spec.shape, std::vector<int64_t>(spec.shape.size(), 0),
                      spec.shape, place};
    if (spec.is_expert()) {
      const auto dim = static_cast<size_t>(spec.sharded.expert);
      ATHANOR_CHECK(spec.shape[dim] % expert_degree == 0, "expert_parallel_degree ({}) must divide num_experts ({})",
                    expert_degree, spec.shape[dim]);
      entry.extent[dim] = spec.shape[dim] / expert_degree;
      entry.offset[dim] = expert_rank * entry.extent[dim];
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Decoder::Decoder(const ModelConfig& model, const ParameterStore& parameters, DecoderOptions options)
    : model_(model), rotary_(make_rotary(model)), options_(options) {
  embedding_ = parameters.weight("model.embed_tokens.weight");
  for (int64_t l = 0; l < model.num_hidden_layers; ++l) {
    layers_.emplace_back(model, parameters, l, options.routing);
    if (options.dispatch) layers_.back().feed_forward().set_dispatch(options.dispatch);
  }
  final_norm_ = make_norm(model, parameters, "model.norm.weight");
  output_ = model.tie_word_embeddings ? embedding_ : parameters.weight("lm_head.weight");
  if (model.is_moe()) {
    const double uniform = static_cast<double>(model.num_experts_per_tok) / static_cast<double>(model.num_experts);
    previous_share_ = at::full({model.num_sparse_layers(), model.num_experts}, uniform, at::kFloat);
  }
}

void Decoder::set_router_bias(const Tensor& bias_LE) {
  ATHANOR_ASSERT(bias_LE.size(0) == model_.num_sparse_layers() && bias_LE.size(1) == model_.num_experts);
  router_bias_ = bias_LE;
  int64_t row = 0;
  for (Layer& layer : layers_) {
    if (layer.feed_forward().is_sparse()) layer.feed_forward().set_router_bias(bias_LE[row++]);
  }
}

// A place begins with a norm, the one reader of the residual stream there: when what it read has its gradient,
// everything from here on has run backward. The branch's comes first, before the backward of what made it.
void Decoder::enter(int64_t place, const Residual& residual) const {
  if (options_.hooks.before_forward) options_.hooks.before_forward(place);
  const Tensor& read = residual.branch.defined() ? residual.branch : residual.x;
  if (!options_.hooks.after_backward || !read.defined() || !read.requires_grad()) return;
  read.register_hook([&hooks = options_.hooks, place](const Tensor&) { hooks.after_backward(place); });
}

Tensor Decoder::hidden(const Tensor& tokens_BT, const ops::DocumentLengths& documents,
                       std::vector<moe::Routing>* routings, const moe::BatchPosition& position) const {
  const Tensor positions = positions_of(tokens_BT.size(0), tokens_BT.size(1), documents);
  const auto context = std::make_shared<const LayerContext>(LayerContext{
      ops::make_rotation(positions, rotary_.frequency, rotary_.scale), documents, options_.recompute, position});
  enter(0, {});
  Residual residual{ops::embedding(tokens_BT, embedding_), {}};
  int64_t place = 1;
  for (const Layer& layer : layers_) {
    enter(place++, residual);
    residual = layer.forward(residual, context, routings);
  }
  enter(place, residual);
  return final_norm_.of(residual).normed;
}

Tensor Decoder::forward(int microbatch, Tensor tokens_BT, const Labels* labels) {
  ATHANOR_ASSERT(labels && !pending_.contains(microbatch));
  std::vector<moe::Routing> routings;
  const Tensor h = hidden(tokens_BT, labels->documents, &routings, {labels->step, labels->first_sequence});
  Pending pending;
  const Tensor loss_sum =
      ops::linear_cross_entropy(h.reshape({-1, model_.hidden_size}), output_, labels->targets.reshape({-1}),
                                labels->loss_scale, options_.loss_chunk_tokens);
  pending.roots.push_back(loss_sum);
  pending.grads.push_back(at::ones_like(loss_sum));  // linear_cross_entropy applied loss_scale already
  pending.parts.loss_sum = loss_sum.item<double>();
  pending.parts.num_targets = count_targets(labels->targets);
  if (!routings.empty()) add_router_losses(routings, *labels, tokens_BT.size(1), pending);
  pending_.emplace(microbatch, std::move(pending));
  return {};
}

void Decoder::add_router_losses(const std::vector<moe::Routing>& routings, const Labels& labels, int64_t seq_len,
                                Pending& pending) {
  const Tensor aux = moe::balance_loss_sum(options_.aux_scope, routings, seq_len, previous_share_);
  Tensor z;
  for (const auto& routing : routings) z = z.defined() ? z + routing.z_sum : routing.z_sum;
  pending.parts.aux_sum = aux.item<double>();
  pending.parts.z_sum = z.item<double>();
  pending.parts.routers = moe::count_routings(routings);
  if (fault_planted("router.count_twice")) pending.parts.routers += pending.parts.routers;  // as recomputation would
  const auto add_root = [&](const Tensor& root, double scale) {
    if (scale == 0) return;
    pending.roots.push_back(root);
    pending.grads.push_back(at::full_like(root, scale));
  };
  add_root(aux, labels.aux_scale);
  add_root(z, labels.z_scale);
}

Tensor Decoder::backward(int microbatch, Tensor /*dy*/) {
  Pending& pending = pending_.at(microbatch);
  torch::autograd::backward(pending.roots, pending.grads);
  if (options_.hooks.after_backward) options_.hooks.after_backward(0);
  pending.roots.clear();
  pending.grads.clear();
  return {};
}

LossParts Decoder::take_parts(int microbatch) {
  auto node = pending_.extract(microbatch);
  ATHANOR_ASSERT(!node.empty());
  return node.mapped().parts;
}

TokenScores Decoder::score(Tensor tokens_BT, const Labels* labels) {
  const at::NoGradGuard no_grad;
  const Tensor h = hidden(tokens_BT, labels->documents, nullptr);
  const auto losses = ops::token_losses(h.reshape({-1, model_.hidden_size}), output_.value,
                                        labels->targets.reshape({-1}), options_.loss_chunk_tokens);
  return {losses.loss.neg().view(tokens_BT.sizes()), losses.is_greedy.view(tokens_BT.sizes())};
}

Tensor Decoder::logits(const Tensor& tokens_BT, const ops::DocumentLengths& documents) const {
  const at::NoGradGuard no_grad;
  return at::linear(hidden(tokens_BT, documents, nullptr), output_.value);
}

Tensor Decoder::next_logits(const Tensor& tokens_BT, std::vector<KvCache>& caches) const {
  const at::NoGradGuard no_grad;
  const int64_t batch = tokens_BT.size(0), added = tokens_BT.size(1), past = caches.at(0).length;
  const Tensor positions = at::arange(past, past + added, at::kLong).expand({batch, added});
  const auto rotation = ops::make_rotation(positions, rotary_.frequency, rotary_.scale);
  Residual residual{ops::embedding(tokens_BT, embedding_), {}};
  for (size_t l = 0; l < layers_.size(); ++l) residual = layers_[l].forward_cached(residual, rotation, caches[l]);
  const Tensor last = residual.sum().narrow(1, added - 1, 1);
  return at::linear(final_norm_.of(last), output_.value).squeeze(1);
}

std::vector<KvCache> Decoder::make_caches(int64_t batch, int64_t capacity) const {
  std::vector<KvCache> caches;
  const auto options = embedding_.value.options();
  for (size_t l = 0; l < layers_.size(); ++l) {
    const std::vector<int64_t> shape = {batch, capacity, model_.kv_heads(), model_.head_dim()};
    caches.push_back({at::empty(shape, options), at::empty(shape, options), 0});
  }
  return caches;
}

}  // namespace athanor
