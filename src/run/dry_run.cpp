#include "run/dry_run.h"

#include <set>

#include "arch/flops.h"
#include "config/precision.h"
#include "layout/schedule.h"
#include "ops/tensor.h"
#include "plan/rank_traffic.h"
#include "run/start.h"
#include "saves/local_save.h"
#include "train/update_sums.h"

namespace athanor::inline run {
namespace {

// The lines of a step, then those of its second backward. The first line of a group has its collectives in flight. In
// check mode each collective comes with a second one, which a world without peers leaves out.
std::vector<SentLine> lines_of(const RankPlan& plan, const RunConfig& config, const Layout& layout, int rank) {
  const int64_t at_once = config.parallelism.check_collectives ? 2 : 1;
  std::vector<SentLine> lines;
  std::set<GroupKind> shown;
  const auto add = [&](const RankTraffic& line, const std::string& prefix) {
    const bool shows = line.collective != Collective::kSend && shown.insert(line.group).second;
    lines.push_back({prefix + purpose_name(line.purpose), collective_name(line.collective), group_name(line.group),
                     layout.group_size(line.group, rank), line.calls, line.bytes, line.inside,
                     shows ? at_once * plan.in_flight.at(line.group) : 0});
  };
  for (const RankTraffic& line : plan.sent) add(line, "");
  for (const RankTraffic& line : traffic_of_second_backward(plan.sent, config)) add(line, "second ");
  return lines;
}

int most_in_flight(const RunConfig& config, const Layout& layout, int rank) {
  const auto& p = config.parallelism;
  const Schedule schedule = make_schedule(p.pipeline_schedule.word(), layout.pipeline(),
                                          static_cast<int>(p.virtual_stages), static_cast<int>(layout.microbatches()));
  return check_schedule(schedule).in_flight[static_cast<size_t>(layout.coordinate(rank, Axis::kPipeline))];
}

// Without numbers of nodes all ranks are on one.
std::vector<double> sum_by_node(const std::vector<double>& of_ranks, const std::vector<int>& nodes) {
  std::vector<double> sums(nodes.empty() ? 1 : static_cast<size_t>(nodes.back()) + 1);
  for (size_t rank = 0; rank < of_ranks.size(); ++rank)
    sums[nodes.empty() ? 0 : static_cast<size_t>(nodes[rank])] += of_ranks[rank];
  return sums;
}

}  // namespace

std::map<std::string, int64_t> DryRun::collectives_in_flight() const {
  std::map<std::string, int64_t> most;
  for (const SentLine& line : sent) {
    if (line.in_flight > 0) most[line.group] = std::max(most[line.group], line.in_flight);
  }
  return most;
}

DryRun dry_run(const RunConfig& config, int num_ranks, int rank) {
  const Layout layout(config, num_ranks);
  const int64_t seq_len = config.data.seq_len;
  const std::vector<int> hosts = planned_hosts(config.topology, num_ranks);
  DryRun run;
  run.model_flops = count_train_flops(config.model, config.train.global_batch_size, seq_len);
  run.executed_flops = count_executed_flops(config.model, parse_recompute(config.parallelism.recompute),
                                            config.train.global_batch_size, seq_len);
  run.threads = static_cast<int>(std::max<int64_t>(1, config.train.num_threads));
  const PlannedPlace place = planned_place(config, num_ranks);
  run.on_device = place.on_device();
  const RankPlan planned = rank >= 0 ? plan_rank(config, layout, rank, place) : fullest_plan(config, layout, place);
  run.rank = planned.rank;
  comm::WorldOptions options = world_options(config);
  options.fake_rank = run.rank;
  options.fake_size = num_ranks;
  const auto world = comm::World::open(options);
  const Mesh mesh(layout, *world);
  const ShardPlan plan(mesh, config.parallelism.sharding);
  const Precision precision = precision_of(config);
  const ParameterStore parameters(
      make_bucket_entries(held_parameters(config.model, config.parallelism, layout, run.rank)),
      ops::scalar_type(precision.compute), ParameterStore::Use::kTraining, plan.sharding(bucket_elements(config)),
      at::kMeta);

  run.held = count_held_by_replication(config, layout, run.rank);
  run.flat_elements = parameters.flat_size();
  run.num_buckets = parameters.buckets().size();
  run.state = {.weights = static_cast<int64_t>(parameters.compute().nbytes()),
               .master = precision.rounds_weights() ? static_cast<int64_t>(parameters.master_low().nbytes()) : 0,
               .optimizer = count_optimizer_bytes(parameters.table(), parameters.flat_size(), parameters.owned(),
                                                  plan_optimizers(config.optimizer)),
               .gradient = static_cast<int64_t>(parameters.grad().nbytes())};
  run.need = planned.need;
  run.opened = planned.opened;
  run.sent = lines_of(planned, config, layout, run.rank);
  run.batch_bytes =
      2.0 * sizeof(int64_t) * static_cast<double>(layout.microbatches() * config.train.micro_batch_size * seq_len);
  run.in_flight = most_in_flight(config, layout, run.rank);
  if (!config.checkpoint.interval.is_off())
    for (const auto& [word, writers] : kWords<Writers>)
      run.written_by_node[std::string(word)] = sum_by_node(count_written_bytes(config, layout, writers), hosts);
  run.staging_bytes = count_staging_bytes(config, layout, run.rank, plan_optimizers(config.optimizer));
  // Without topology.ranks_per_node the number of nodes is not known: several take more than one.
  if (config.checkpoint.local_interval > 0)
    run.local_bytes =
        static_cast<double>(local_copies(hosts.empty() ? num_ranks : hosts.back() + 1)) * run.staging_bytes;
  if (config.metrics.update_watch_interval > 0) run.measured_update_bytes = count_update_sums_bytes(parameters, plan);
  return run;
}

}  // namespace athanor::inline run
