#include "layout/memory.h"

#include <functional>
#include <numeric>

#include "base/error.h"
#include "layout/activations.h"
#include "layout/holding.h"
#include "layout/shards.h"

namespace athanor {

HeldElements count_held_elements(const ModelConfig& model, int64_t expert_degree) {
  HeldElements held;
  for (const auto& spec : make_inventory(model)) {
    if (spec.is_expert()) {
      held.expert += spec.num_elements() / expert_degree;
    } else {
      held.dense += spec.num_elements();
    }
  }
  return held;
}

std::map<Replication, int64_t> count_held_by_replication(const RunConfig& config, const Layout& layout, int rank) {
  std::map<Replication, int64_t> held_by;
  for (const HeldParameter& held : held_parameters(config.model, config.parallelism, layout, rank)) {
    held_by[held.replication] +=
        std::accumulate(held.extent.begin(), held.extent.end(), int64_t{1}, std::multiplies<int64_t>{});
  }
  return held_by;
}

HeldElements count_held_elements(const RunConfig& config, const Layout& layout, int rank) {
  HeldElements held;
  for (const auto& [replication, elements] : count_held_by_replication(config, layout, rank))
    (replication.is_expert() ? held.expert : held.dense) += elements;
  return held;
}

StateShards count_state_shards(const ParallelismConfig& parallelism, const Layout& layout) {
  const ShardingKind sharding = parse_sharding(parallelism.sharding);
  const auto shards = [&](Replication replication) { return shards_of(layout, 0, sharding, replication).shards; };
  return {shards(Replication::kDense), shards(Replication::kExpert)};
}

StateBytes count_state_bytes(HeldElements held, StateShards shards, bool bf16) {
  const auto share = [](int64_t elements, int64_t ranks) { return (elements + ranks - 1) / ranks; };
  const int64_t owned = share(held.dense, shards.dense) + share(held.expert, shards.expert);
  return {.weights = held.total() * (bf16 ? 2 : 4),
          .master = bf16 ? owned * 2 : 0,
          .moments = owned * 8,
          .gradient = held.total() * 4};
}

MemoryNeed estimate_train_memory(const RunConfig& config, int64_t seq_len, const Layout& layout, int rank,
                                 Multiplier multiplier) {
  const bool bf16 = config.train.dtype == "bfloat16";
  const HeldElements held = count_held_elements(config, layout, rank);
  const ActivationNeed activations = count_activations(config, seq_len, layout, rank, multiplier);
  MemoryNeed need;
  need.state_bytes =
      static_cast<double>(count_state_bytes(held, count_state_shards(config.parallelism, layout), bf16).total());
  need.activation_bytes = activations.kept_bytes;
  need.transient_bytes = activations.transient_bytes();
  if (config.train.reduce_dtype == "bfloat16") {
    for (const auto& [replication, elements] : count_held_by_replication(config, layout, rank)) {
      const bool alone = layout.group_size(replication.data_ranks(), rank) == 1 && !replication.replicas();
      if (!alone) need.buffer_bytes += 2 * static_cast<double>(elements);
    }
  }
  return need;
}

int fullest_rank(const RunConfig& config, int64_t seq_len, const Layout& layout) {
  int fullest = 0;
  double most = 0;
  for (const int rank : layout.group_of(GroupKind::kModel, 0)) {
    const double need = estimate_train_memory(config, seq_len, layout, rank).total();
    if (need > most) fullest = rank, most = need;
  }
  return fullest;
}

}  // namespace athanor
