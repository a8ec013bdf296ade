#include "model/layer.h"

#include <functional>
#include <optional>

#include "config/families.h"

namespace athanor {
namespace {

std::string layer_prefix(int64_t index) { return "model.layers." + std::to_string(index) + "."; }

// A part of a layer that may route: with `saved` choices, or by itself, appending to `routings`.
using RoutingPart =
    std::function<Tensor(const Tensor& x, std::vector<moe::Routing>* routings, const moe::Choices* saved)>;

// part(x), to be computed again in backward with the choices of now. What was counted is taken from now alone; the
// sums that the losses are made of are outputs of the region, so that their gradients reach the second computation.
Tensor recompute_routed(const Tensor& x, RoutingPart part, std::vector<moe::Routing>& routings) {
  auto choices = std::make_shared<std::optional<moe::Choices>>();
  auto decided = std::make_shared<std::vector<moe::Routing>>();
  const auto outputs = checkpoint(
      x, [part = std::move(part), choices, now = std::weak_ptr(decided)](const Tensor& input) -> std::vector<Tensor> {
        std::vector<moe::Routing> routed;
        const Tensor y = part(input, &routed, *choices ? &**choices : nullptr);
        if (routed.empty()) return {y};
        if (!*choices) {
          *choices = routed[0].choices();
          *now.lock() = routed;
        }
        return {y, routed[0].prob_sum_BE, routed[0].z_sum};
      });
  for (moe::Routing& routing : *decided) {
    routing.prob_sum_BE = outputs[1];
    routing.z_sum = outputs[2];
    routings.push_back(std::move(routing));
  }
  return outputs[0];
}

// The output of a norm is not kept for the backward of `consumer`, which was made of it.
void forget_normed(const Norm& norm, const ops::NormedSum& in, const Tensor& consumer) {
  forget_until_backward(in.normed, consumer, [norm, sum = in.sum.detach()] { return norm.of(sum); });
}

}  // namespace

Tensor Norm::of(const Tensor& x) const {
  return weight.defined() ? ops::rms_norm(x, weight, eps) : ops::layer_norm(x, eps);
}

ops::NormedSum Norm::of(const Residual& residual) const {
  const auto& [x, branch] = residual;
  if (!branch.defined()) return {x, of(x)};
  return weight.defined() ? ops::add_rms_norm(x, branch, weight, eps) : ops::add_layer_norm(x, branch, eps);
}

Norm make_norm(const ModelConfig& model, const ParameterStore& parameters, const std::string& name) {
  const bool scaled = family_of(model).norm == NormKind::kRms;
  return {scaled ? parameters.weight(name) : Weight{}, norm_eps(model)};
}

Layer::Layer(const ModelConfig& model, const ParameterStore& parameters, int64_t index,
             const moe::RoutingPolicy& routing)
    : input_norm_(make_norm(model, parameters, layer_prefix(index) + "input_layernorm.weight")),
      post_attention_norm_(make_norm(model, parameters, layer_prefix(index) + "post_attention_layernorm.weight")),
      attention_(model, parameters, layer_prefix(index)),
      feed_forward_(model, parameters, index, layer_prefix(index), routing) {}

Residual Layer::forward(const Residual& in, const std::shared_ptr<const LayerContext>& context,
                        std::vector<moe::Routing>* routings) const {
  const bool training = routings && at::GradMode::is_enabled();
  if (!training) return forward_parts(in, context, {}, routings, nullptr);
  if (!context->recompute.layer) return forward_parts(in, context, context->recompute, routings, nullptr);
  const auto whole = [this, context](const Tensor& x, std::vector<moe::Routing>* routed, const moe::Choices* saved) {
    return forward_parts({x, {}}, context, {}, routed, saved).sum();
  };
  return {recompute_routed(in.sum(), whole, *routings), {}};
}

Residual Layer::forward_parts(const Residual& in, const std::shared_ptr<const LayerContext>& context,
                              const RecomputeKinds& recompute, std::vector<moe::Routing>* routings,
                              const moe::Choices* saved) const {
  const ops::NormedSum before = input_norm_.of(in);
  const Tensor attended = attend(before.normed, context, recompute.attention);
  if (recompute.norm) forget_normed(input_norm_, before, attended);

  const ops::NormedSum between = post_attention_norm_.of(Residual{before.sum, attended});
  const Tensor fed = feed(between.normed, context->position, recompute.moe, routings, saved);
  if (recompute.norm) forget_normed(post_attention_norm_, between, fed);
  return {between.sum, fed};
}

Tensor Layer::attend(const Tensor& normed, const std::shared_ptr<const LayerContext>& context, bool recompute) const {
  const auto region = [this, context](const Tensor& x) -> std::vector<Tensor> {
    return {attention_.forward(x, context->rotation, context->documents)};
  };
  return recompute ? checkpoint(normed, region)[0] : region(normed)[0];
}

Tensor Layer::feed(const Tensor& normed, const moe::BatchPosition& position, bool recompute,
                   std::vector<moe::Routing>* routings, const moe::Choices* saved) const {
  const auto region = [this, position](const Tensor& x, std::vector<moe::Routing>* routed,
                                       const moe::Choices* choices) {
    return feed_forward_.forward(x, routed, choices, position);
  };
  return recompute ? recompute_routed(normed, region, *routings) : region(normed, routings, saved);
}

Residual Layer::forward_cached(const Residual& in, const ops::Rotation& rotation, KvCache& cache) const {
  const ops::NormedSum before = input_norm_.of(in);
  const Tensor attended = attention_.forward_cached(before.normed, rotation, cache);
  const ops::NormedSum between = post_attention_norm_.of(Residual{before.sum, attended});
  return {between.sum, feed_forward_.forward(between.normed, nullptr)};
}

}  // namespace athanor
