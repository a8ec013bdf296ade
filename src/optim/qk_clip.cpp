#include "optim/qk_clip.h"

#include <cmath>
#include <limits>

#include "arch/model_spec.h"
#include "optim/optimized_parameters.h"

namespace athanor::inline optim {
QkClip::QkClip(const ModelConfig& model, double threshold, ParameterStore& store, const ShardPlan& shards)
    : names_(family_of(model).names), store_(store), shards_(shards), threshold_(threshold),
      head_dim_(model.head_dim()), shares_keys_(model.kv_heads() != model.num_attention_heads) {
  const int64_t heads = model.num_attention_heads / shards.mesh().layout().tensor();
  largest_ =
      at::full({model.num_hidden_layers, heads}, -std::numeric_limits<float>::infinity(), store.grad().options());
}

void QkClip::begin_gradients() { largest_.fill_(-std::numeric_limits<float>::infinity()); }

void QkClip::observe(const Observation& observation) {
  const auto [layer, part] = place_in_layer(names_, observation.place);
  if (layer < 0 || part != ".logits") return;
  const Tensor largest = largest_[layer];
  largest.copy_(at::maximum(largest, observation.tensor.amax(0)));
}

void QkClip::begin() {
  shards_.mesh().group(GroupKind::kData).all_reduce(largest_, comm::Reduction::kMax).wait();
  // A logit that is not above the threshold, or is not finite, changes nothing.
  const Tensor is_clipped = largest_.gt(threshold_).logical_and(largest_.isfinite());
  const Tensor ratio = at::full_like(largest_, threshold_) / largest_;
  const Tensor gamma = at::where(is_clipped, ratio, at::ones_like(ratio));
  query_factors_ = shares_keys_ ? gamma : gamma.sqrt();
  key_factors_ = shares_keys_ ? Tensor() : query_factors_;
  share_numbers(is_clipped);
}

// Each rank of the model has other layers or heads. Of equal logits the first layer counts, so that no layout changes
// it.
void QkClip::share_numbers(const Tensor& is_clipped) {
  comm::Communicator& model = shards_.mesh().group(GroupKind::kModel);
  const auto first_with = [](const Tensor& values, const Tensor& largest, const Tensor& layers) {
    return at::where(values.eq(largest), layers, std::numeric_limits<double>::infinity()).min();
  };
  const Tensor of_layers = largest_.amax(1).to(at::kDouble), largest = of_layers.max(),
               layers = at::arange(of_layers.size(0), of_layers.options());
  numbers_ = at::stack({largest, first_with(of_layers, largest, layers), is_clipped.sum().to(at::kDouble)});
  if (model.size() == 1) return;
  const Tensor all = at::empty({model.size(), numbers_.size(0)}, numbers_.options());
  model.all_gather(all, numbers_).wait();
  const Tensor of_ranks = all.select(1, 0), largest_of_all = of_ranks.max();
  numbers_ =
      at::stack({largest_of_all, first_with(of_ranks, largest_of_all, all.select(1, 1)), all.select(1, 2).sum()});
}

void QkClip::apply(FlatRange range, const ops::OnDevice& there) {
  for (const BucketEntry& entry : store_.table()) {
    const bool is_query = entry.role == Role::kQuery;
    if (!is_query && (entry.role != Role::kKey || shares_keys_)) continue;
    const FlatRange here = intersect(range, entry.range());
    if (here.size() <= 0) continue;
    const Tensor factors = (is_query ? query_factors_ : key_factors_)[entry.layer];
    for (const OwnedRange& owned : store_.owned()) {
      const FlatRange piece = intersect(here, owned.flat);
      if (piece.size() > 0) scale(entry, piece, factors, there);
    }
  }
}

void QkClip::scale(const BucketEntry& entry, FlatRange piece, const Tensor& factors, const ops::OnDevice& there) {
  const int64_t of_head = head_dim_ * entry.extent[1], first = piece.begin - entry.flat_begin;
  ops::scale_groups(factors, of_head, first, update_memory(store_, piece), there);
}

// The layer is infinite if no logit is a number; such a step is refused.
LargestLogit largest_logit_of(const Tensor& numbers) {
  const auto* number = numbers.const_data_ptr<double>();
  return {number[0], std::isfinite(number[1]) ? std::llround(number[1]) : -1, std::llround(number[2])};
}

}  // namespace athanor::inline optim
