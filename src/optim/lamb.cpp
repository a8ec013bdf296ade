#include "optim/lamb.h"

#include <cmath>
#include <ranges>

namespace athanor {

Lamb::Lamb(const OptimizerConfig& config, OptimizedParameters parameters, const TensorSums& sums, const ShardPlan& plan)
    : Optimizer(declare_optimizer("lamb"), std::move(parameters)), beta1_(config.betas[0]), beta2_(config.betas[1]),
      eps_(config.eps), sums_(sums), plan_(plan) {}

void Lamb::begin(const Update& update) {
  ParameterStore& store = parameters().store();
  const auto options = store.grad().options();
  const Tensor squares = at::zeros({sums_.num_matrices(), 2}, options.dtype(at::kDouble));
  for (const Bucket& bucket : std::views::reverse(store.buckets())) add_directions(update, bucket, squares);
  sums_.add_up(squares);
  const Tensor ratios = (squares.select(1, 0) / squares.select(1, 1)).sqrt();
  ratios_ = at::where(squares.gt(0).all(1), ratios, at::ones({}, ratios.options())).to(at::kFloat);
}

// Pieces of one matrix, each within what this rank counts of the bucket or without: only the first add to the sums.
void Lamb::add_directions(const Update& given, const Bucket& bucket, const Tensor& squares) {
  const FlatRange counted = plan_.canonical(bucket);
  const Tensor uncounted = at::zeros({2}, squares.options());
  kernels::LambStep rule{};
  rule.eps = static_cast<float>(eps_), rule.beta1 = beta1_, rule.beta2 = beta2_;
  rule.grad_scale = static_cast<float>(given.grad_scale);
  parameters().for_each_owned(bucket.range, [&](const auto& segment, FlatRange owned, int64_t begin) {
    const auto updates = static_cast<double>(given.step - segment.since);
    rule.weight_decay = static_cast<float>(segment.weight_decay);
    rule.bias_correction1 = static_cast<float>(1 - std::pow(beta1_, updates));
    rule.bias_correction2 = static_cast<float>(1 - std::pow(beta2_, updates));
    const auto add = [&](FlatRange piece, const Tensor& sums) {
      if (piece.size() <= 0) return;
      const auto of_state = [&](const char* kind) {
        return state(kind).narrow(0, begin + piece.begin - owned.begin, piece.size());
      };
      ops::lamb_direction(rule, parameters().memory(piece), of_state("exp_avg"), of_state("exp_avg_sq"), sums,
                          given.on_device);
    };
    sums_.for_each_matrix(owned, [&](const BucketEntry&, int64_t matrix, FlatRange piece) {
      const FlatRange inside = intersect(piece, counted);
      if (inside.size() <= 0) return add(piece, uncounted);
      add({piece.begin, inside.begin}, uncounted);
      add(inside, squares.select(0, matrix));
      add({inside.end, piece.end}, uncounted);
    });
  });
}

int64_t Lamb::apply(const Update& given, FlatRange range) {
  int64_t changed = 0;
  parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t) {
    sums_.for_each_matrix(owned, [&](const BucketEntry&, int64_t matrix, FlatRange piece) {
      changed += ops::subtract(1, given.lr * segment.lr_scale, ratios_.narrow(0, matrix, 1), parameters().memory(piece),
                               given.on_device);
    });
  });
  return changed;
}

}  // namespace athanor
