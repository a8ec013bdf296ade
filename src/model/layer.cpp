#include "model/layer.h"

#include <functional>
#include <optional>

#include "config/families.h"

namespace athanor::inline model {
namespace {

std::string layer_name(int64_t index) { return "model.layers." + std::to_string(index); }
std::string layer_prefix(int64_t index) { return layer_name(index) + "."; }

// A part of a layer that may route: with `saved` choices, or with its own, which it appends to `routings`.
using RoutingPart =
    std::function<Tensor(const Tensor& x, std::vector<moe::Routing>* routings, const moe::Choices* saved)>;

// Computes part(x), which backward computes again with the same choices. Counts are taken from the first computation
// only. The sums from which losses are computed are outputs of the region, so that their gradients reach the second
// computation.
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
             const moe::RoutingPolicy& routing, const TensorRanks& ranks)
    : name_(layer_name(index)), previous_(layer_name(index - 1)), attention_name_(name_ + ".self_attn"),
      feed_forward_name_(name_ + ".mlp"), ranks_(ranks),
      input_norm_(make_norm(model, parameters, layer_prefix(index) + "input_layernorm.weight")),
      post_attention_norm_(make_norm(model, parameters, layer_prefix(index) + "post_attention_layernorm.weight")),
      attention_(model, parameters, layer_prefix(index), ranks),
      feed_forward_(model, parameters, index, layer_prefix(index), routing, ranks) {}

Residual Layer::forward(const Residual& in, const std::shared_ptr<const LayerContext>& context,
                        std::vector<moe::Routing>* routings) const {
  const bool training = routings && at::GradMode::is_enabled();
  if (!training) return forward_parts(in, context, {}, routings, nullptr);
  if (!context->recompute.layer) return forward_parts(in, context, context->recompute, routings, nullptr);
  const auto phase = std::make_shared<Phase>(Phase::kForward);
  const auto whole = [this, context, phase](const Tensor& x, std::vector<moe::Routing>* routed,
                                            const moe::Choices* saved) {
    const Tensor y = forward_parts({x, {}}, context, {}, routed, saved, *phase).sum();
    context->watch.forward(name_, y, *phase);
    *phase = Phase::kRecompute;
    return y;
  };
  const Tensor y = recompute_routed(in.sum(), whole, *routings);
  context->watch.backward(name_, y);
  return {y, {}};
}

Residual Layer::forward_parts(const Residual& in, const Context& context, const RecomputeKinds& recompute,
                              std::vector<moe::Routing>* routings, const moe::Choices* saved, Phase phase) const {
  const Watch& watch = context->watch;
  ops::NormedSum before = input_norm_.of(in);
  const Tensor sum = before.sum;
  if (in.branch.defined()) watch.forward(previous_, sum, phase);
  const Tensor attended = attend(std::move(before), context, recompute, phase);
  watch.forward(attention_name_, attended, phase);
  watch.backward(attention_name_, attended);
  ops::NormedSum between = post_attention_norm_.of(Residual{sum, attended});
  const Tensor last_sum = between.sum;
  const Tensor fed = feed(std::move(between), context, recompute, routings, saved);
  watch.forward(feed_forward_name_, fed, phase);
  if (!context->recompute.layer)
    watch.backward(name_, fed);  // the gradient of the sum is the gradient of each of its
                                 // terms
  watch.backward(feed_forward_name_, fed);
  return {last_sum, fed};
}

// A region that is computed again begins with what a rank keeps, its own tokens, and ends with the part that is summed
// afterwards. So the sum is not computed twice.
Tensor Layer::attend(ops::NormedSum in, const Context& context, const RecomputeKinds& recompute, Phase phase) const {
  const auto again = std::make_shared<bool>(phase != Phase::kForward);
  const auto part = [this, context, again](const TensorParallelInput& x) {
    const Watch watch = *again ? Watch() : context->watch;
    *again = true;
    return attention_.forward(x.partitioned, context->rotation, context->documents, watch, context->tree.get());
  };
  Tensor read, y;
  if (recompute.attention) {
    read = in.normed;
    y = checkpoint(read, [this, context, part](const Tensor& x) -> std::vector<Tensor> {
      return {part(enter_tensor_parallel(x, ranks_, context->batch))};
    })[0];
  } else {
    const TensorParallelInput x = enter_tensor_parallel(in.normed, ranks_, context->batch);
    in.normed.reset();  // all ranks' tokens replace the rank's own
    read = x.partitioned;
    y = part(x);
  }
  if (recompute.norm) forget_normed(input_norm_, in.sum, read, y, context->batch);
  return leave_tensor_parallel(y, ranks_);
}

Tensor Layer::feed(ops::NormedSum in, const Context& context, const RecomputeKinds& recompute,
                   std::vector<moe::Routing>* routings, const moe::Choices* saved) const {
  const auto part = [this, context](const TensorParallelInput& x, std::vector<moe::Routing>* routed,
                                    const moe::Choices* choices) {
    return feed_forward_.forward(x, routed, choices, context->position);
  };
  Tensor read, y;
  if (recompute.moe) {
    const auto region = [this, context, part](const Tensor& x, std::vector<moe::Routing>* routed,
                                              const moe::Choices* choices) {
      return part(enter_tensor_parallel(x, ranks_, context->batch), routed, choices);
    };
    read = in.normed;
    y = recompute_routed(read, region, *routings);
  } else {
    const TensorParallelInput x = enter_tensor_parallel(in.normed, ranks_, context->batch);
    in.normed.reset();  // all ranks' tokens replace the rank's own
    read = x.partitioned;
    y = part(x, routings, saved);
  }
  if (recompute.norm) forget_normed(post_attention_norm_, in.sum, read, y, context->batch);
  return leave_tensor_parallel(y, ranks_);
}

// A norm's output, or all ranks' outputs, are not kept for the backward of `consumer`.
void Layer::forget_normed(const Norm& norm, const Tensor& sum, const Tensor& read, const Tensor& consumer,
                          int64_t batch) const {
  const TensorRanks from = read.sizes() == sum.sizes() ? TensorRanks{} : ranks_;
  forget_until_backward(read, consumer,
                        [norm, sum = sum.detach(), from, batch] { return gather_tokens(norm.of(sum), from, batch); });
}

}  // namespace athanor::inline model
