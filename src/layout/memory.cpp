#include "layout/memory.h"

#include <array>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "config/precision.h"
#include "layout/device_workspace.h"
#include "layout/holding.h"
#include "layout/shards.h"

namespace athanor::inline layout {
namespace {

int64_t count_elements(const std::vector<int64_t>& extent) {
  return std::accumulate(extent.begin(), extent.end(), int64_t{1}, std::multiplies<int64_t>{});
}

}  // namespace

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
    held_by[held.replication] += count_elements(held.extent);
  }
  return held_by;
}

HeldElements count_held_elements(const RunConfig& config, const Layout& layout, int rank) {
  HeldElements held;
  for (const auto& [name, part] : count_held_by_optimizer(config, layout, rank, plan_optimizers(config.optimizer))) {
    held.dense += part.dense;
    held.expert += part.expert;
    held.matrices += part.matrices;
  }
  return held;
}

std::map<std::string, HeldElements> count_held_by_optimizer(const RunConfig& config, const Layout& layout, int rank,
                                                            const OptimizerPlan& optimizers) {
  std::map<std::string, HeldElements> held_by;
  for (const HeldParameter& p : held_parameters(config.model, config.parallelism, layout, rank)) {
    HeldElements& held = held_by[optimizers.optimizer_of(p.spec.name, p.spec.role).name];
    (p.replication.is_expert() ? held.expert : held.dense) += count_elements(p.extent);
    held.matrices += count_matrices(p.replication, p.extent);
  }
  return held_by;
}

StateShards count_state_shards(const ParallelismConfig& parallelism, const Layout& layout) {
  const ShardingKind sharding = parallelism.sharding;
  const auto shards = [&](Replication replication) { return shards_of(layout, 0, sharding, replication).shards; };
  return {shards(Replication::kDense), shards(Replication::kExpert)};
}

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  weights += other.weights;
  master += other.master;
  optimizer += other.optimizer;
  gradient += other.gradient;
  return *this;
}

StateBytes count_state_bytes(HeldElements held, StateShards shards, bool bf16, const OptimizerDeclaration& optimizer) {
  const auto share = [](int64_t elements, int64_t ranks) { return (elements + ranks - 1) / ranks; };
  const int64_t owned = share(held.dense, shards.dense) + share(held.expert, shards.expert);
  return {.weights = held.total() * (bf16 ? 2 : 4),
          .master = bf16 ? owned * 2 : 0,
          .optimizer = owned * optimizer.bytes_per_element() + held.matrices * optimizer.bytes_per_matrix() +
                       optimizer.scalar_bytes(),
          .gradient = held.total() * 4};
}

StateBytes count_state_bytes(const RunConfig& config, const Layout& layout, int rank, const OptimizerPlan& optimizers) {
  const StateShards shards = count_state_shards(config.parallelism, layout);
  StateBytes bytes;
  for (const auto& [name, held] : count_held_by_optimizer(config, layout, rank, optimizers))
    bytes += count_state_bytes(held, shards, precision_of(config).rounds_weights(), optimizers.optimizer(name));
  return bytes;
}

double count_staging_bytes(const RunConfig& config, const Layout& layout, int rank, const OptimizerPlan& optimizers) {
  if (!config.checkpoint.async || config.checkpoint.interval.is_off()) return 0;
  const Writers writers = config.checkpoint.writers;
  double values = 0;
  for (const HeldParameter& p : held_parameters(config.model, config.parallelism, layout, rank)) {
    const OptimizerDeclaration& optimizer = optimizers.optimizer_of(p.spec.name, p.spec.role);
    const Shards shards = shards_of(layout, rank, config.parallelism.sharding, p.replication);
    const int64_t parts = shards.num_written(writers);
    if (parts == 0) continue;
    values += static_cast<double>(count_elements(p.extent) * parts) / static_cast<double>(shards.parts) *
              static_cast<double>(1 + optimizer.count_kinds(StateKind::Extent::kElement));
    values += static_cast<double>(count_matrices(p.replication, p.extent) *
                                  optimizer.count_kinds(StateKind::Extent::kMatrix));
  }
  return values * sizeof(float);
}

namespace {

// Numbers that the writers of a replication kind's parts divide.
std::map<Replication, double> count_state_values(const RunConfig& config, const Layout& layout, int rank,
                                                 const OptimizerPlan& optimizers) {
  std::map<Replication, double> values;
  for (const HeldParameter& p : held_parameters(config.model, config.parallelism, layout, rank)) {
    const OptimizerDeclaration& optimizer = optimizers.optimizer_of(p.spec.name, p.spec.role);
    values[p.replication] += static_cast<double>(
        count_elements(p.extent) * (1 + optimizer.count_kinds(StateKind::Extent::kElement)) +
        count_matrices(p.replication, p.extent) * optimizer.count_kinds(StateKind::Extent::kMatrix));
  }
  return values;
}

}  // namespace

std::vector<double> count_written_bytes(const RunConfig& config, const Layout& layout, Writers writers) {
  const OptimizerPlan optimizers = plan_optimizers(config.optimizer);
  const ShardingKind sharding = config.parallelism.sharding;
  // Ranks with these coordinates in common hold parts of the same sizes.
  std::map<std::array<int, 3>, std::map<Replication, double>> values_at;
  std::vector<double> bytes;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto at = [&](Axis axis) { return layout.coordinate(rank, axis); };
    const std::array<int, 3> place{at(Axis::kPipeline), at(Axis::kTensor), at(Axis::kExpert)};
    auto known = values_at.find(place);
    if (known == values_at.end())
      known = values_at.emplace(place, count_state_values(config, layout, rank, optimizers)).first;
    double written = 0;
    for (const auto& [replication, values] : known->second) {
      const Shards shards = shards_of(layout, rank, sharding, replication);
      written += values * static_cast<double>(shards.num_written(writers)) / static_cast<double>(shards.parts);
    }
    bytes.push_back(written * sizeof(float));
  }
  return bytes;
}

double count_graph_bytes(const RunConfig& config, const MemoryNeed& need) {
  if (!config.train.cuda_graphs) return 0;
  const bool observes = config.metrics.layer_statistics > 0;
  const auto layers = static_cast<double>(config.model.num_hidden_layers);
  return need.transient_bytes + need.activation_bytes / (observes ? 1 : layers);
}

double count_workspace_bytes(const RunConfig& config, const Layout& layout) {
  const bool records_graph = config.train.cuda_graphs && layout.world_size() == 1;
  return count_cublas_workspaces(records_graph) * cublas_workspace_bytes();
}

double count_allocator_bytes(double bytes_that_come_and_go) { return 0.1 * bytes_that_come_and_go; }

}  // namespace athanor::inline layout
