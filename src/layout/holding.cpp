#include "layout/holding.h"

#include <algorithm>

#include "base/error.h"
#include "layout/stages.h"

namespace athanor::inline layout {
namespace {

// Keeps part `index` of `parts` of a dim.
void cut(HeldParameter& held, int dim, int64_t parts, int64_t index) {
  const auto d = static_cast<size_t>(dim);
  const int64_t size = held.spec.shape[d];
  held.offset[d] = size * index / parts;
  held.extent[d] = size * (index + 1) / parts - held.offset[d];
}

Replication replication_of(const ModelConfig& model, const ParallelismConfig& parallelism, const Layout& layout,
                           const ParameterSpec& spec) {
  if (spec.is_expert()) return Replication::kExpert;
  if (spec.role == Role::kEmbedding && model.tie_word_embeddings && layout.pipeline() > 1) return Replication::kTied;
  if (layout.tensor() == 1) return Replication::kDense;
  if (spec.of_key_heads) return layout.tensor() > model.kv_heads() ? Replication::kKeyValue : Replication::kDense;
  if (spec.sharded.tensor >= 0) return Replication::kDense;
  const bool of_heads = spec.gradient == TensorGradient::kOfHeads,
             of_tokens = spec.gradient == TensorGradient::kOfTokens;
  return of_heads || (of_tokens && parallelism.sequence_parallel) ? Replication::kPartial : Replication::kReplicated;
}

}  // namespace

std::vector<HeldParameter> held_parameters(const ModelConfig& model, const ParallelismConfig& parallelism,
                                           const Layout& layout, int rank) {
  const int64_t after_layers = 1 + model.num_hidden_layers;
  const int64_t tensor_rank = layout.coordinate(rank, Axis::kTensor);
  const auto stages = stages_of(model, parallelism, layout.coordinate(rank, Axis::kPipeline));
  const auto has_layer = [&](int64_t l) {
    return std::ranges::any_of(stages, [&](const StageLayers& s) { return s.first <= l && l < s.end; });
  };
  std::vector<HeldParameter> held;
  for (const auto& spec : make_inventory(model)) {
    HeldParameter p{spec, std::vector<int64_t>(spec.shape.size(), 0), spec.shape,
                    replication_of(model, parallelism, layout, spec)};
    if (spec.layer >= 0) {
      if (!has_layer(spec.layer)) continue;
      p.forward_index = 1 + spec.layer;
    } else if (spec.is_front()) {
      const bool as_output = spec.role == Role::kEmbedding && model.tie_word_embeddings && stages.back().has_head;
      if (!stages.front().embeds && !as_output) continue;
      p.forward_index = stages.front().embeds ? 0 : after_layers;
    } else {
      if (!stages.back().has_head) continue;
      p.forward_index = after_layers;
    }
    if (spec.is_expert()) {
      const auto dim = static_cast<size_t>(spec.sharded.expert);
      ATHANOR_CHECK(spec.shape[dim] % layout.expert() == 0, "expert_parallel_degree ({}) must divide num_experts ({})",
                    layout.expert(), spec.shape[dim]);
      cut(p, spec.sharded.expert, layout.expert(), layout.coordinate(rank, Axis::kExpert));
    }
    if (spec.sharded.tensor >= 0) {
      // Fewer key and value heads than ranks: neighbours hold the same one.
      const int64_t parts = spec.of_key_heads ? std::min<int64_t>(layout.tensor(), model.kv_heads()) : layout.tensor();
      cut(p, spec.sharded.tensor, parts, tensor_rank * parts / layout.tensor());
    }
    held.push_back(std::move(p));
  }
  std::ranges::stable_sort(held, {}, &HeldParameter::forward_index);
  return held;
}

std::vector<BucketEntry> make_bucket_entries(const std::vector<HeldParameter>& held) {
  std::vector<BucketEntry> entries;
  for (const auto& p : held) {
    entries.push_back(
        {p.spec.name, p.replication, p.spec.shape, p.offset, p.extent, p.forward_index, p.spec.role, p.spec.layer});
  }
  return entries;
}

}  // namespace athanor::inline layout
