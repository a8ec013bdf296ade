#pragma once
// Shared by the tests of layouts on devices that the host plays: a short training of a layout on ranks that are
// threads, on CPUs and on a device for each, what it reports, and how far two of them may differ.

#include <cmath>
#include <nlohmann/json.hpp>

#include "comm/testing/guarded_groups.h"
#include "kernels/matmul_path.h"
#include "model/initialize.h"
#include "ops/testing/other_orders.h"
#include "ops/transfer.h"
#include "run/start.h"
#include "train/testing/device_case.h"
#include "train/train_step.h"
#include "verify/plants/plant.h"
#include "verify/small_model.h"

namespace athanor::inline verify {

/// What rank 0 reports of a training.
struct LayoutTrace {
  std::vector<double> numbers;            ///< losses and norms of all steps
  std::vector<int64_t> targets, choices;  ///< tokens with a target, and what routers count, in all steps
  ops::TransferCounts transfers;          ///< sums over all ranks, in the last step
  std::string dispatch;                   ///< the kind that the run took
  double best_share = 0;                  ///< ReductionTrace::share
  int64_t times_planted = 0;              ///< how often a planted fault acted, on all ranks

  bool same_bits(const LayoutTrace& other) const {
    return numbers == other.numbers && targets == other.targets && choices == other.choices;
  }
};

/// How a layout is trained.
struct LayoutRun {
  guarded::Order order = {};
  uint64_t draw = 1;
  std::string plant = {};                                       ///< a fault that `verify` plants; empty: none
  double scale = 1;                                             ///< a factor of all initial weights
  std::chrono::milliseconds timeout = std::chrono::minutes(1);  ///< a rank waits as long for one that has failed
  std::function<void(int rank)> before_last_step = {};          ///< called on each rank
};

/// Trains for train.steps steps on the data that `verify` draws.
inline LayoutTrace train_layout(TrainState& state, const LayoutRun& how) {
  const RunConfig& config = state.config;
  initialize_parameters(config.model, static_cast<uint64_t>(config.train.seed), state.model.parameters);
  if (how.scale != 1) state.model.parameters.compute().mul_(how.scale);
  LayoutTrace trace;
  trace.dispatch = config.moe.dispatch.word();
  if (const std::string& record = state.model.dispatch_record; !record.empty())
    trace.dispatch = nlohmann::json::parse(record).at("dispatch").get<std::string>();
  comm::Communicator& all = state.model.mesh.world().all();
  for (int64_t step = 1; step <= config.train.steps; ++step) {
    all.barrier();
    const ops::TransferCounts before = ops::transfer_counts();
    if (how.before_last_step && step == config.train.steps) how.before_last_step(state.model.mesh.rank());
    all.barrier();
    const StepReport report = train_step(state, make_verify_batch(config, step, how.draw));
    all.barrier();
    trace.transfers = ops::transfer_counts() - before;
    for (const double each : {report.parts.loss_sum, report.parts.aux_sum, report.parts.z_sum, report.grad_norm})
      trace.numbers.push_back(each);
    trace.numbers.insert(trace.numbers.end(), report.rank_norms.ranks.begin(), report.rank_norms.ranks.end());
    trace.numbers.insert(trace.numbers.end(), report.rank_norms.experts.begin(), report.rank_norms.experts.end());
    for (const PartSquares& group : report.noise)
      for (const double square : {group.parts, group.whole}) trace.numbers.push_back(std::sqrt(square));
    trace.targets.push_back(report.parts.num_targets);
    trace.best_share = std::max(trace.best_share, report.reduction.share().value_or(0));
    if (!report.parts.routers.defined()) continue;
    for (Tensor RouterCounts::*each : RouterCounts::kCounts) {
      const Tensor& counts = report.parts.routers.*each;
      if (!counts.defined()) continue;
      ATHANOR_ASSERT(counts.is_contiguous());
      const auto* count = counts.const_data_ptr<int64_t>();
      trace.choices.insert(trace.choices.end(), count, count + counts.numel());
    }
  }
  state.model.gatherer.wait_all();
  return trace;
}

inline comm::WorldOptions layout_world(const RunConfig& config, const LayoutRun& how) {
  comm::WorldOptions options = world_options(config);
  options.timeout = how.timeout;
  return options;
}

/// Trains on one rank of the layout.
inline LayoutTrace train_rank(const RunConfig& config, comm::World& real_world, at::Device device,
                              const LayoutRun& how) {
  const auto plant = how.plant.empty() ? nullptr : plants::make_plant(how.plant);
  const auto planted = plant ? plants::planted_world(real_world, *plant) : nullptr;
  comm::World& world = planted ? *planted : real_world;
  Mesh mesh(Layout(config, world.size()), world);
  if (!device.is_cpu()) mesh.use(device, config.parallelism.device_sums);
  TrainStateOptions options = plant ? plants::planted_options(*plant) : TrainStateOptions{};
  options.device = device;
  TrainState state(config, {}, mesh, std::move(options));
  if (plant) plant->watch(state);
  LayoutTrace trace = train_layout(state, how);
  const Tensor times = at::full({1}, plant ? plant->times() : 0, at::kLong);
  world.all().all_reduce(times).wait();
  trace.times_planted = times.item<int64_t>();
  return trace;
}

inline LayoutTrace train_on_cpus(const RunConfig& config, int world_size, const LayoutRun& how = {}) {
  LayoutTrace trace;
  comm::run_ranks(
      world_size,
      [&](comm::World& world) {
        const LayoutTrace own = train_rank(config, world, at::kCPU, how);
        if (world.rank() == 0) trace = own;
      },
      layout_world(config, how));
  return trace;
}

inline LayoutTrace train_on_devices(const RunConfig& config, int world_size, const LayoutRun& how) {
  LayoutTrace trace;
  comm::run_device_ranks(
      world_size,
      [&](comm::World& world, at::Device device) {
        guarded::queues().set_order(how.order);
        const LayoutTrace own = train_rank(config, world, device, how);
        if (world.rank() == 0) trace = own;
        guarded::queues().synchronize_all();
        world.all().barrier();
        guarded::queues().set_order({});
      },
      layout_world(config, how));
  return trace;
}

inline double largest_difference(const LayoutTrace& a, const LayoutTrace& b) {
  if (a.numbers.size() != b.numbers.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.numbers.size(); ++i)
    largest = std::max(largest, std::abs(a.numbers[i] - b.numbers[i]) / std::max(std::abs(a.numbers[i]), 1e-300));
  return largest;
}

/// What rounding makes of a training on CPUs.
struct LayoutRounding {
  double difference = 0;     ///< the largest relative one of any number
  bool same_choices = true;  ///< routers count alike; a choice that turned may turn on devices, too

  double add(const LayoutTrace& expected, const LayoutTrace& found) {
    const double other = largest_difference(expected, found);
    difference = std::max(difference, other);
    same_choices = same_choices && expected.choices == found.choices;
    return other;
  }
};

/// Returns how far those trainings on CPUs differ from `expected` whose products are added in other orders, that begin
/// with weights one unit in the last place larger (which also shows how much an optimizer makes of a gradient that is
/// rounding alone), or that have fp32 where gradients are summed, or Muon's matrices multiplied, in bf16.
inline LayoutRounding rounding_of(const LayoutTrace& expected, const RunConfig& config, int world_size) {
  LayoutRounding rounding;
  ops::test::difference_of_paths([&] { return rounding.add(expected, train_on_cpus(config, world_size)); });
  rounding.add(expected, train_on_cpus(config, world_size, {.scale = 1 + 0x1p-23}));
  RunConfig exact = config;  // what lies between two values of bf16 may be rounded to either
  exact.train.reduce_dtype = "float32";
  exact.optimizer.newton_schulz_dtype = "float32";
  if (config.train.reduce_dtype == "bfloat16" ||
      (config.optimizer.name == "muon" && config.optimizer.newton_schulz_dtype == "bfloat16"))
    rounding.add(expected, train_on_cpus(exact, world_size));
  return rounding;
}

/// Returns the copies and waits that a step of all ranks may have: on each rank one copy there, one back and one wait,
/// and one more copy and wait in each of its sparse layers, for each microbatch, if dispatch sends numbers of rows that
/// no capacity bounds.
inline ops::TransferCounts promised_transfers(const RunConfig& config, int world_size, const std::string& dispatch) {
  const Layout layout(config, world_size);
  const bool fetches = layout.expert() > 1 && config.moe.balance != Balance::kCapacity;
  const int64_t of_layer = fetches && dispatch.starts_with("all_to_all") ? 1 : 0;
  const int64_t of_layers =
      of_layer * layout.microbatches() * config.model.num_sparse_layers() * (world_size / layout.pipeline());
  return {world_size, world_size + of_layers, world_size + of_layers};
}

}  // namespace athanor::inline verify
