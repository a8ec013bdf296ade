#include "plan/rank_memory.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "layout/stages.h"
#include "plan/played_step.h"
#include "plan/rank_traffic.h"

namespace athanor::inline plan {
namespace {

// The tokens and angles of a microbatch are made while it is played.
constexpr int64_t kMostTokens = int64_t{1} << 26;

// A pipeline is as full after this many microbatches as it gets; those that follow differ in nothing. Under gpipe all
// are in flight.
int64_t different_microbatches(const ParallelismConfig& p, const Layout& layout) {
  const int64_t all = layout.microbatches();
  if (layout.pipeline() == 1) return std::min<int64_t>(2, all);
  return p.pipeline_schedule == PipelineSchedule::kGpipe ? all
                                                         : std::min(all, 2 * layout.pipeline() * p.virtual_stages);
}

// The run with as many microbatches as differ, and with all that a step of any number may hold.
RunConfig shortened(const RunConfig& config, const Layout& layout) {
  RunConfig shorter = config;
  shorter.train.global_batch_size =
      config.train.global_batch_size / layout.microbatches() * different_microbatches(config.parallelism, layout);
  shorter.train.batch_ramp = {};
  shorter.train.stages = {};
  shorter.optimizer.hessian_interval = 1;
  return shorter;
}

// What a device holds in addition to tensors.
void add_device_bytes(RankPlan& plan, const RunConfig& config, const Layout& layout, int rank, const PlannedPlace& on) {
  MemoryNeed& need = plan.need;
  plan.opened = opened_groups(layout, rank, plan.sent, on.hosts);
  for (const OpenedGroup& opened : plan.opened) need.communicator_bytes += opened.bytes;
  if (layout.world_size() == 1) need.graph_bytes = count_graph_bytes(config, need);  // others record none
  need.allocator_bytes = count_allocator_bytes(need.passing_bytes() + need.graph_bytes);
  if (on.place == ops::PlayedPlace::kCuda) need.workspace_bytes = count_workspace_bytes(config, layout);
}

// What tells the memory of stages apart: layers, embedding, head, and FLOPs, which differ by the kinds of layers.
using Parts = std::tuple<int64_t, bool, bool, double>;

}  // namespace

PlannedPlace device_place(const RunConfig& config, std::vector<int> hosts) {
  const bool is_xpu = config.train.device == DeviceKind::kXpu;
  return {is_xpu ? ops::PlayedPlace::kOther : ops::PlayedPlace::kCuda, 1, std::move(hosts)};
}

PlannedPlace planned_place(const RunConfig& config, int num_ranks) {
  const bool names_device = config.train.device != DeviceKind::kAuto && config.train.device != DeviceKind::kCpu;
  if (names_device) return device_place(config, planned_hosts(config.topology, num_ranks));
  return {ops::PlayedPlace::kPlannedHost, static_cast<int>(std::max<int64_t>(1, config.train.num_threads)), {}};
}

RankPlan plan_rank(const RunConfig& config, const Layout& layout, int rank, const PlannedPlace& on) {
  const int64_t of_microbatch = config.train.micro_batch_size * config.data.seq_len;
  ATHANOR_CHECK(of_microbatch <= kMostTokens,
                "a microbatch has {} tokens (train.micro_batch_size × data.seq_len), for which no memory can be "
                "computed; give it at most {}",
                of_microbatch, kMostTokens);
  const RunConfig shorter = shortened(config, layout);
  std::unique_ptr<PlayedStep> played;
  try {
    played = play_step(shorter, {layout.world_size(), rank, on.place, on.threads, {}});
  } catch (const c10::Error& error) {
    fail<NotPlayed>("the memory of this run is not known, since its step cannot be played (a run is not affected): {}",
                    first_line(error.what_without_backtrace()));
  }
  // The step has the tokens and targets of all microbatches, int64.
  const int64_t all = layout.microbatches(), different = different_microbatches(config.parallelism, layout);
  const double of_others = 2.0 * sizeof(int64_t) * static_cast<double>((all - different) * of_microbatch);
  RankPlan plan{rank, {}, traffic_of_step(played->record, config, different, all), played->in_flight};
  MemoryNeed& need = plan.need;
  need.state_bytes = static_cast<double>(played->kept_bytes);
  need.activation_bytes = static_cast<double>(played->activation_bytes()) + of_others;
  need.transient_bytes = static_cast<double>(played->gradient_bytes() - played->activation_bytes());
  const auto optimizers = plan_optimizers(config.optimizer);
  if (std::ranges::any_of(optimizers.optimizers, [](const auto& each) { return each.needs.home_matrices; }))
    need.update_bytes = static_cast<double>(played->update_bytes()) + of_others;
  if (on.on_device()) {
    add_device_bytes(plan, config, layout, rank, on);
  } else {
    need.staging_bytes = count_staging_bytes(config, layout, rank, optimizers);
  }
  return plan;
}

MemoryNeed memory_if_known(const RunConfig& config, const Layout& layout, int rank, const PlannedPlace& on) {
  try {
    return memory_of_rank(config, layout, rank, on);
  } catch (const NotPlayed& unknown) {
    log::warn("{}", unknown.what());
    return {};
  }
}

std::vector<int> ranks_that_differ(const RunConfig& config, const Layout& layout) {
  std::vector<int> ranks;
  std::vector<std::vector<Parts>> known;
  const std::vector<int> of_model = layout.group_of(GroupKind::kModel, 0);
  for (int i = 0; i < layout.pipeline(); ++i) {  // tensor ranks have equal parts
    const int rank = of_model[static_cast<size_t>(i * layout.tensor())];
    std::vector<Parts> parts;
    for (const StageLayers& stage : stages_of(config.model, config.parallelism, i))
      parts.emplace_back(stage.num_layers(), stage.embeds, stage.has_head, stage_cost(config.model, stage));
    if (std::ranges::count(known, parts) > 0) continue;
    known.push_back(std::move(parts));
    ranks.push_back(rank);
  }
  return ranks;
}

RankPlan fullest_plan(const RunConfig& config, const Layout& layout, const PlannedPlace& on) {
  std::vector<RankPlan> plans;
  for (const int rank : ranks_that_differ(config, layout)) plans.push_back(plan_rank(config, layout, rank, on));
  return *std::ranges::max_element(plans, {}, [](const RankPlan& plan) { return plan.need.total(); });
}

}  // namespace athanor::inline plan
