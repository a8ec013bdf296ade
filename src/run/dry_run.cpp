#include "run/dry_run.h"

#include "config/precision.h"
#include "layout/schedule.h"
#include "layout/update_cost.h"
#include "ops/tensor.h"
#include "parallel/gradient_reducer.h"
#include "parallel/weight_gatherer.h"
#include "run/start.h"
#include "saves/local_save.h"
#include "train/update_sums.h"

namespace athanor::inline run {
namespace {

// Counts what the groups have sent since `before`, by collective.
class Meter {
 public:
  /// @param checked  in check mode each collective comes with a second one, which a world without peers leaves out.
  Meter(const Mesh& mesh, bool checked) : mesh_(mesh), at_once_(checked ? 2 : 1) {
    for (const auto& [kind, group] : mesh.groups()) group->reset_traffic();
  }

  void read(const std::string& what, std::vector<SentLine>& lines) const {
    for (const auto& [kind, group] : mesh_.groups()) {
      const comm::Traffic& traffic = group->traffic();
      const double total = static_cast<double>(traffic.bytes()), inside = static_cast<double>(traffic.bytes_inside);
      for (const auto& [collective, bytes] : traffic.bytes_of) {
        if (group->size() < 2) continue;
        const auto sent = static_cast<double>(bytes);
        lines.push_back({what, collective_name(collective), group_name(kind), group->size(),
                         static_cast<double>(traffic.calls_of.at(collective)), sent,
                         total > 0 ? sent * inside / total : 0, at_once_ * traffic.most_in_flight});
      }
      group->reset_traffic();
    }
  }

 private:
  const Mesh& mesh_;
  int64_t at_once_;
};

// Sends the gradients and weights, bucket by bucket.
void send_buckets(const RunConfig& config, const ParameterStore& parameters, const ShardPlan& plan,
                  std::vector<SentLine>& lines) {
  const Meter meter(plan.mesh(), config.parallelism.check_collectives);
  GradientReducer reducer(parameters, plan, ops::scalar_type(precision_of(config).reduce));
  reducer.finish();
  meter.read("gradients", lines);
  WeightGatherer gatherer(parameters, plan);
  for (const Bucket& bucket : parameters.buckets()) gatherer.start(bucket);
  gatherer.wait_all();
  meter.read("weights", lines);
}

SentLine line_of(const RankTraffic& line, const Mesh& mesh) {
  const auto& group = mesh.group(line.group).options().world_ranks;
  const double share = share_inside(line, group, mesh.rank(), mesh.world().supernodes());
  return {line.what.name(),
          collective_name(line.collective),
          group_name(line.group),
          static_cast<int>(group.size()),
          line.calls,
          line.bytes,
          line.bytes * share,
          0};
}

// Adds the traffic other than gradients and weights.
void add_formulas(const RunConfig& config, const Mesh& mesh, std::vector<SentLine>& lines) {
  for (const RankTraffic& line : count_rank_traffic(config, mesh.layout(), mesh.rank(), config.data.seq_len)) {
    if (line.what.purpose != TrafficPurpose::kGradients && line.what.purpose != TrafficPurpose::kWeights)
      lines.push_back(line_of(line, mesh));
  }
}

// Adds the traffic of the update, after that of the step.
void add_update(const RunConfig& config, const Mesh& mesh, const ParameterStore& parameters,
                std::vector<SentLine>& lines) {
  const UpdateCost cost =
      count_update_cost(config, mesh.layout(), mesh.rank(), parameters.table(), parameters.buckets());
  const std::vector<SentLine> step = lines;
  for (const RankTraffic& line : cost.sent) lines.push_back(line_of(line, mesh));
  for (SentLine line : step) {
    if (cost.second_backwards == 0 || line.what == "weights") continue;
    line.what = "second " + line.what;
    line.calls *= cost.second_backwards, line.bytes *= cost.second_backwards, line.inside *= cost.second_backwards;
    line.in_flight = 0;
    lines.push_back(line);
  }
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
  run.threads = static_cast<int>(std::max<int64_t>(1, config.train.num_threads));
  const PlannedPlace place = planned_place(config, num_ranks);
  run.on_device = place.on_device();
  run.rank = rank >= 0 ? rank : fullest_rank(config, layout, place);
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
  run.need = memory_of_rank(config, layout, run.rank, place);
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
  send_buckets(config, parameters, plan, run.sent);
  add_formulas(config, mesh, run.sent);
  add_update(config, mesh, parameters, run.sent);
  if (config.metrics.update_watch_interval > 0) run.measured_update_bytes = count_update_sums_bytes(parameters, plan);
  if (run.on_device) run.opened = opened_groups(config, layout, run.rank, seq_len, hosts);
  return run;
}

}  // namespace athanor::inline run
