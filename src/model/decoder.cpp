#include "model/decoder.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "model/rotary.h"
#include "ops/document_tables.h"
#include "ops/embedding.h"
#include "ops/soft_cap.h"
#include "ops/transfer.h"
#include "parallel/gradient_reducer.h"
#include "parallel/vocabulary.h"

namespace athanor::inline model {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;  // tokens of a microbatch

int64_t count_targets(const Tensor& targets) {
  const Tensor ids = targets.contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  return ids.numel() - std::count(id, id + ids.numel(), kernels::kNoTarget);
}

}  // namespace

std::vector<BucketEntry> make_bucket_entries(const ModelConfig& model, int64_t expert_rank, int64_t expert_degree) {
  ATHANOR_ASSERT(expert_rank >= 0 && expert_rank < expert_degree);
  RunConfig config;
  config.model = model;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = expert_degree;
  config.parallelism.expert_parallel_degree = expert_degree;
  const Layout layout(config, static_cast<int>(expert_degree));
  return make_bucket_entries(held_parameters(model, config.parallelism, layout, static_cast<int>(expert_rank)));
}

Decoder::Decoder(const ModelConfig& model, const ParameterStore& parameters, DecoderOptions options)
    : model_(model), rotations_(make_model_spec(model), model, parameters.compute().device()),
      options_(std::move(options)),
      stage_(options_.stage.value_or(StageLayers{0, model.num_hidden_layers, true, true})),
      compute_type_(parameters.compute().scalar_type()), device_(parameters.compute().device()) {
  for (int64_t l = 0; l < stage_.end; ++l) (l < stage_.first ? first_sparse_ : num_sparse_) += model.is_sparse_layer(l);
  const ModelSpec spec = make_model_spec(model);
  embedding_name_ = spec.embedding.name, final_norm_name_ = spec.final_norm.name;
  // Rounded as the class of transformers does it.
  embedding_scale_ = at::scalar_tensor(spec.embedding_scale, at::kDouble).to(compute_type_).item<double>();
  output_cap_ = spec.output_cap;
  for (int64_t l = stage_.first; l < stage_.end; ++l) {
    layers_.emplace_back(spec.layers[static_cast<size_t>(l)], parameters, options_.routing, options_.tensor);
    SparseBlock* sparse = layers_.back().sparse();
    if (sparse && options_.dispatch) sparse->set_dispatch(options_.dispatch);
  }
  if (stage_.embeds || (stage_.has_head && !spec.output)) embedding_ = parameters.weight(spec.embedding.weight());
  if (stage_.embeds && spec.positions) positions_ = parameters.weight(spec.positions->weight());
  if (stage_.has_head) {
    final_norm_ = NormBlock(spec.final_norm, parameters);
    output_ = spec.output ? parameters.weight(spec.output->weight()) : embedding_;
  }
  if (model.is_moe()) {
    const double uniform = static_cast<double>(model.num_experts_per_tok) / static_cast<double>(model.num_experts);
    previous_share_ =
        at::full({num_sparse_, model.num_experts}, uniform, parameters.compute().options().dtype(at::kFloat));
  }
}

void Decoder::expect(int64_t batch, int64_t seq_len) {
  // Angles are computed from positions in fp32, and choices of experts are counted in fp32, which has all whole numbers
  // up to 2^24.
  ATHANOR_CHECK(batch <= kMostTokens / seq_len,
                "train.micro_batch_size ({}) of data.seq_len ({}) are more than {} tokens at once: lower "
                "train.micro_batch_size",
                batch, seq_len, kMostTokens);
  std::vector<int64_t> shape = {batch, seq_len, model_.hidden_size};
  if (options_.tensor.shares_tokens()) shape = {1, batch * seq_len / options_.tensor.size(), model_.hidden_size};
  const Spec hidden{shape, compute_type_};
  in = stage_.embeds ? Spec{{}, compute_type_} : hidden;
  out = stage_.has_head ? Spec{{}, compute_type_} : hidden;
}

void Decoder::set_previous_share(const Tensor& share) {
  ATHANOR_ASSERT(share.size(0) == model_.num_sparse_layers() && share.size(1) == model_.num_experts);
  previous_share_ = share.narrow(0, first_sparse_, num_sparse_);
}

void Decoder::set_router_bias(const Tensor& bias_LE) {
  ATHANOR_ASSERT(bias_LE.size(0) == model_.num_sparse_layers() && bias_LE.size(1) == model_.num_experts);
  int64_t row = first_sparse_;
  for (Layer& layer : layers_) {
    if (SparseBlock* sparse = layer.sparse()) sparse->set_router_bias(bias_LE[row++]);
  }
}

// Each part of the model that has a forward index begins with a norm, the only reader of the residual stream there.
// When the norm's input has its gradient, everything from here on has run backward. The gradient of the branch comes
// first, before the backward of the ops that made the branch.
void Decoder::enter(int64_t forward_index, const Residual& residual) const {
  if (!options_.gatherer) return;
  options_.gatherer->wait(forward_index);
  const Tensor& read = residual.branch.defined() ? residual.branch : residual.x;
  if (forward_index == first_forward_index() || !read.defined() || !read.requires_grad()) return;
  read.register_hook([this, forward_index](const Tensor&) {
    if (sums_) sums_->ready(forward_index);
  });
}

// The learned vectors of the tokens that this rank has after the embedding: all, or its own under sequence parallelism.
Tensor Decoder::position_vectors(const Tensor& positions) const {
  if (!options_.tensor.shares_tokens()) return ops::embedding(positions, positions_);
  const int64_t here = positions.numel() / options_.tensor.size();
  const Tensor own = positions.reshape({1, -1}).narrow(1, options_.tensor.rank() * here, here);
  return ops::embedding(own, positions_);
}

Tensor Decoder::embed(const Tensor& tokens_BT, const Labels& labels, const Watch& watch) const {
  if (!positions_.defined()) return embed(tokens_BT, Tensor(), watch);
  if (labels.tree) return embed(tokens_BT, ops::send(labels.tree->positions, device_), watch);
  const auto [batch, seq_len] = std::pair(tokens_BT.size(0), tokens_BT.size(1));
  const ops::DocumentLengths documents = ops::with_tables(labels.documents, seq_len, device_);
  return embed(tokens_BT, ops::positions_of_tokens(batch, seq_len, documents, device_), watch);
}

Tensor Decoder::embed(const Tensor& tokens_BT, const Tensor& positions, const Watch& watch) const {
  enter(0, {});
  Tensor x = vocabulary_embedding(tokens_BT, embedding_, model_.vocab_size, options_.tensor);
  if (embedding_scale_ != 1) x = x * embedding_scale_;
  if (positions_.defined()) x = x + position_vectors(positions.view(tokens_BT.sizes()));
  watch.forward(embedding_name_, x);
  watch.backward(embedding_name_, x);
  return x;
}

Residual Decoder::run_layers(Residual residual, const Labels& labels, std::vector<moe::Routing>* routings,
                             const Watch& watch) const {
  const auto [batch, seq_len] = std::pair(labels.targets.size(0), labels.targets.size(1));
  const ops::DocumentLengths documents =
      labels.tree ? ops::DocumentLengths{} : ops::with_tables(labels.documents, seq_len, device_);
  const Rotations rotations = rotations_.of([&](auto& tables) {
    return labels.tree ? tables.of_positions(labels.tree->positions) : tables.of_sequences(batch, seq_len, documents);
  });
  const auto context = std::make_shared<const LayerContext>(
      LayerContext{rotations, documents, options_.recompute, moe::BatchPosition{labels.step, labels.first_sequence},
                   batch, watch, labels.tree});
  int64_t forward_index = 1 + stage_.first;
  for (const Layer& layer : layers_) {
    enter(forward_index++, residual);
    residual = layer.forward(residual, context, routings);
  }
  return residual;
}

// Returns the input of the output layer, [tokens, hidden].
Tensor Decoder::final_hidden(const Residual& residual, int64_t batch, const Watch& watch) const {
  enter(1 + stage_.end, residual);
  const auto [sum, normed] = final_norm_.of(residual);
  if (residual.branch.defined()) watch.forward(layers_.back().name(), sum);
  watch.forward(final_norm_name_, normed);
  watch.backward(final_norm_name_, normed);
  return enter_tensor_parallel(normed, options_.tensor, batch).partitioned.reshape({-1, model_.hidden_size});
}

// Returns the input of the next stage.
Tensor Decoder::add_up(const Residual& residual, const Watch& watch) const {
  const Tensor sum = residual.sum();
  if (residual.branch.defined()) watch.forward(layers_.back().name(), sum);
  return sum;
}

Tensor Decoder::loss_sum(const Residual& residual, const Labels& labels, const Watch& watch) const {
  const Tensor h = final_hidden(residual, labels.targets.size(0), watch);
  return vocabulary_cross_entropy(h, output_, labels.targets.reshape({-1}), model_.vocab_size, labels.loss_scale,
                                  options_.loss_chunk_tokens, options_.tensor, labels.draw, output_cap_);
}

void Decoder::add_root(Pending& pending, const Tensor& root, Tensor grad) {
  pending.roots.push_back(torch::autograd::impl::gradient_edge(root));
  pending.grads.push_back(std::move(grad));
}

Tensor Decoder::forward(int microbatch, Tensor x, const Labels* labels) {
  ATHANOR_ASSERT(labels && !pending_.contains(microbatch));
  Pending pending;
  pending.parts.sums = at::zeros({LossParts::kNumSums}, at::TensorOptions(at::kDouble).device(device_));
  if (!stage_.embeds) pending.input = x = x.detach().requires_grad_();
  const Watch watch(options_.observers, microbatch, labels->first_sequence);
  std::vector<moe::Routing> routings;
  const Residual residual = run_layers({stage_.embeds ? embed(x, *labels, watch) : x, {}}, *labels, &routings, watch);
  Tensor sent;
  if (stage_.has_head) {
    const Tensor loss = loss_sum(residual, *labels, watch);
    add_root(pending, loss, at::ones_like(loss));  // linear_cross_entropy applied loss_scale already
    pending.parts.sums[LossParts::kLoss].copy_(loss.detach());
    pending.parts.num_targets = labels->num_targets >= 0 ? labels->num_targets : count_targets(labels->targets);
  } else {
    const Tensor y = add_up(residual, watch);
    add_root(pending, y, {});
    sent = y.detach();
  }
  if (model_.is_moe()) add_router_losses(routings, *labels, labels->targets.size(1), pending);
  pending_.emplace(microbatch, std::move(pending));
  return sent;
}

void Decoder::add_router_losses(const std::vector<moe::Routing>& routings, const Labels& labels, int64_t seq_len,
                                Pending& pending) {
  pending.parts.routers = count_of_model(routings);
  if (routings.empty()) return;
  const Tensor aux = moe::balance_loss_sum(options_.aux_scope, routings, seq_len, previous_share_);
  const Tensor z = moe::z_loss_sum(routings);
  pending.parts.sums[LossParts::kAux].copy_(aux.detach());
  pending.parts.sums[LossParts::kZ].copy_(z.detach());
  if (labels.aux_scale != 0) add_root(pending, aux, at::full_like(aux, labels.aux_scale));
  if (labels.z_scale != 0) add_root(pending, z, at::full_like(z, labels.z_scale));
}

// The rows are those of the model's sparse layers.
RouterCounts Decoder::count_of_model(const std::vector<moe::Routing>& routings) const {
  const int64_t rows = model_.num_sparse_layers(), experts = model_.num_experts,
                expert_ranks = options_.routing.expert_ranks;
  if (num_sparse_ == rows) return moe::count_routings(routings, expert_ranks);
  RouterCounts counts;
  for (Tensor RouterCounts::*sums : {&RouterCounts::chosen, &RouterCounts::taken})
    counts.*sums = at::zeros({rows, experts}, at::TensorOptions(at::kLong).device(device_));
  for (Tensor RouterCounts::*sums : {&RouterCounts::moved, &RouterCounts::dropped, &RouterCounts::flat})
    counts.*sums = at::zeros({rows}, at::TensorOptions(at::kLong).device(device_));
  counts.entropy_sum = at::zeros({rows}, at::TensorOptions(at::kDouble).device(device_));
  if (expert_ranks > 1) counts.to_rank = at::zeros({rows, expert_ranks}, at::TensorOptions(at::kLong).device(device_));
  if (routings.empty()) return counts;
  const RouterCounts here = moe::count_routings(routings, expert_ranks);
  for (Tensor RouterCounts::*sums : RouterCounts::kCounts) {
    if ((counts.*sums).defined()) (counts.*sums).narrow(0, first_sparse_, num_sparse_).copy_(here.*sums);
  }
  counts.entropy_sum.narrow(0, first_sparse_, num_sparse_).copy_(here.entropy_sum);
  return counts;
}

Tensor Decoder::backward(int microbatch, Tensor dy, GradientReducer* sums) {
  Pending& pending = pending_.at(microbatch);
  sums_ = sums;
  if (!stage_.has_head) pending.grads[0] = std::move(dy);
  torch::autograd::Engine::get_default_engine().execute(pending.roots, pending.grads, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
  if (sums) sums->ready(first_forward_index());
  sums_ = nullptr;
  Tensor dx = stage_.embeds ? Tensor() : pending.input.grad();
  pending.input = Tensor();
  pending.roots.clear();
  pending.grads.clear();
  return dx;
}

LossParts Decoder::take_parts(int microbatch) {
  auto node = pending_.extract(microbatch);
  ATHANOR_ASSERT(!node.empty());
  return node.mapped().parts;
}

Tensor Decoder::forward_only(Tensor x, const Labels* labels) {
  const at::NoGradGuard no_grad;
  return run_layers({stage_.embeds ? embed(x, *labels) : x, {}}, *labels, nullptr).sum();
}

TokenScores Decoder::score(Tensor x, const Labels* labels) {
  const at::NoGradGuard no_grad;
  Tensor h =
      final_hidden(run_layers({stage_.embeds ? embed(x, *labels) : x, {}}, *labels, nullptr), labels->targets.size(0));
  if (labels->rows.defined()) h = h.index_select(0, labels->rows);
  const auto losses = vocabulary_token_losses(h, output_.value, labels->targets.reshape({-1}), model_.vocab_size,
                                              options_.loss_chunk_tokens, options_.tensor, output_cap_);
  return {losses.loss.neg().view(labels->targets.sizes()), losses.is_greedy.view(labels->targets.sizes())};
}

Tensor Decoder::logits(const Tensor& tokens_BT, const ops::DocumentLengths& documents) const {
  const at::NoGradGuard no_grad;
  Labels labels;
  labels.targets = tokens_BT;  // for their shape
  labels.documents = documents;
  const Tensor h = final_hidden(run_layers({embed(tokens_BT, labels), {}}, labels, nullptr), tokens_BT.size(0));
  return ops::soft_cap(at::linear(h, output_.value), output_cap_).view({tokens_BT.size(0), tokens_BT.size(1), -1});
}

}  // namespace athanor::inline model
