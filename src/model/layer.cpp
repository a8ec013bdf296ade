#include "model/layer.h"

#include <functional>
#include <optional>

namespace athanor::inline model {
namespace {

std::variant<FeedForwardBlock, SparseBlock> make_feed_forward(const LayerSpec& spec, const ParameterStore& parameters,
                                                              const moe::RoutingPolicy& routing,
                                                              const TensorRanks& ranks) {
  if (spec.is_sparse()) return SparseBlock(spec.sparse(), parameters, routing, ranks);
  return FeedForwardBlock(spec.dense(), parameters);
}

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

std::optional<NormBlock> make_norm(const std::optional<NormSpec>& spec, const ParameterStore& parameters) {
  return spec ? std::optional(NormBlock(*spec, parameters)) : std::nullopt;
}

}  // namespace

Layer::Layer(const LayerSpec& spec, const ParameterStore& parameters, const moe::RoutingPolicy& routing,
             const TensorRanks& ranks)
    : name_(spec.name), previous_(spec.previous), attention_name_(spec.attention.name),
      feed_forward_name_(spec.feed_forward_name()), ranks_(ranks), is_parallel_(spec.parallel),
      attention_norm_(make_norm(spec.attention_norm, parameters)),
      attention_out_norm_(make_norm(spec.attention_out_norm, parameters)),
      feed_forward_norm_(make_norm(spec.feed_forward_norm, parameters)),
      feed_forward_out_norm_(make_norm(spec.feed_forward_out_norm, parameters)),
      attention_(spec.attention, parameters, spec.name, ranks),
      feed_forward_(make_feed_forward(spec, parameters, routing, ranks)) {}

// A dense layer routes nothing.
Tensor Layer::feed_forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings, const moe::Choices* saved,
                           const moe::BatchPosition& position) const {
  const auto* sparse = std::get_if<SparseBlock>(&feed_forward_);
  return sparse ? sparse->forward(x, routings, saved, position)
                : std::get<FeedForwardBlock>(feed_forward_).forward(x.partitioned);
}

Tensor Layer::leave_feed_forward(const Tensor& y) const {
  const Tensor sum = leave_tensor_parallel(y, ranks_);
  const auto* dense = std::get_if<FeedForwardBlock>(&feed_forward_);
  return dense ? dense->add_bias(sum) : sum;
}

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
  ops::NormedSum before = read_stream(attention_norm_, in);
  const Tensor sum = before.sum;
  if (in.branch.defined()) watch.forward(previous_, sum, phase);
  const Tensor attended = attend(std::move(before), context, recompute, phase);
  watch.forward(attention_name_, attended, phase);
  watch.backward(attention_name_, attended);
  Between next = between(sum, branch_of(attention_out_norm_, attended));
  const Tensor fed = feed(std::move(next.in), context, recompute, routings, saved);
  watch.forward(feed_forward_name_, fed, phase);
  const Tensor branch = branch_of(feed_forward_out_norm_, fed);
  // The gradient of the sum is the gradient of each of its terms.
  if (!context->recompute.layer) watch.backward(name_, branch);
  watch.backward(feed_forward_name_, fed);
  return {next.last_sum, branch};
}

Layer::Between Layer::between(const Tensor& sum, const Tensor& branch) const {
  ops::NormedSum in = read_stream(feed_forward_norm_, is_parallel_ ? Residual{sum, {}} : Residual{sum, branch});
  const Tensor last_sum = is_parallel_ ? sum + branch : in.sum;
  return {std::move(in), last_sum};
}

// A region that is computed again begins with what a rank keeps, its own tokens, and ends with the part that is summed
// afterwards. So the sum is not computed twice.
Tensor Layer::attend(ops::NormedSum in, const Context& context, const RecomputeKinds& recompute, Phase phase) const {
  const auto again = std::make_shared<bool>(phase != Phase::kForward);
  const auto part = [this, context, again](const TensorParallelInput& x) {
    const Watch watch = *again ? Watch() : context->watch;
    *again = true;
    return attention_.forward(x.partitioned, context->rotations, context->documents, watch, context->tree.get());
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
  if (recompute.norm) forget_read(attention_norm_, in.sum, read, y, context->batch);
  return attention_.add_bias(leave_tensor_parallel(y, ranks_));
}

Tensor Layer::feed(ops::NormedSum in, const Context& context, const RecomputeKinds& recompute,
                   std::vector<moe::Routing>* routings, const moe::Choices* saved) const {
  const auto part = [this, context](const TensorParallelInput& x, std::vector<moe::Routing>* routed,
                                    const moe::Choices* choices) {
    return feed_forward(x, routed, choices, context->position);
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
  if (recompute.norm) forget_read(feed_forward_norm_, in.sum, read, y, context->batch);
  return leave_feed_forward(y);
}

// What a part reads, a norm's output or all ranks' tokens, is not kept for the backward of `consumer`. The residual
// stream itself is: other parts read it.
void Layer::forget_read(const std::optional<NormBlock>& norm, const Tensor& sum, const Tensor& read,
                        const Tensor& consumer, int64_t batch) const {
  const TensorRanks from = read.sizes() == sum.sizes() ? TensorRanks{} : ranks_;
  if (!norm && from.alone()) return;
  forget_until_backward(read, consumer, [norm, sum = sum.detach(), from, batch] {
    return gather_tokens(read_stream(norm, {sum, {}}).normed, from, batch);
  });
}

}  // namespace athanor::inline model
