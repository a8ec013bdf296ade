#include "layout/layout_faults.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arch/model_spec.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/findings.h"
#include "config/mapping.h"
#include "config/training_stages.h"
#include "layout/layout.h"
#include "layout/schedule.h"
#include "layout/stages.h"

namespace athanor::inline layout {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

// Returns the product of positive factors. A product that does not fit counts as infinite.
int64_t product(std::initializer_list<int64_t> factors) {
  int64_t value = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(value, factor, &value)) return std::numeric_limits<int64_t>::max();
  }
  return value;
}

int64_t other_degrees(const ParallelismConfig& p) {
  return product({p.data_parallel_replicate_degree, p.tensor_parallel_degree, p.pipeline_parallel_degree});
}

// Returns "12 or 24": the multiples next to `value`.
std::string multiples_beside(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  if (below == 0) return std::to_string(unit);
  if (below > std::numeric_limits<int64_t>::max() - unit) return std::to_string(below);
  return fmt::format("{} or {}", below, below + unit);
}

void check_world(const ParallelismConfig& p, int64_t world_size, Findings& found) {
  const int64_t others = other_degrees(p);
  const auto named = fmt::format("pipeline {} × replicate {} × tensor {}", p.pipeline_parallel_degree,
                                 p.data_parallel_replicate_degree, p.tensor_parallel_degree);
  if (p.data_parallel_shard_degree == -1) {
    found.require(world_size % others == 0,
                  "data_parallel_shard_degree -1 takes what the other degrees leave of the ranks, and {} = {} does not "
                  "divide the {} ranks of this job: start a multiple of {}, or lower a degree",
                  named, others, world_size, others);
    return;
  }
  const int64_t needed = product({others, p.data_parallel_shard_degree});
  found.require(needed == world_size,
                "this job has {} ranks, and the degrees need {} (pipeline {} × replicate {} × shard {} × tensor {}): "
                "start {}, or change a degree (data_parallel_shard_degree -1 takes what the others leave)",
                world_size, needed, p.pipeline_parallel_degree, p.data_parallel_replicate_degree,
                p.data_parallel_shard_degree, p.tensor_parallel_degree, needed);
}

// The beginning of a message about a phase or a part of a ramp.
std::string where_of(const TrainingStage& stage) { return stage.name.empty() ? "" : stage.name + ": "; }

void check_experts(const RunConfig& config, std::optional<int64_t> data, Findings& found) {
  const int64_t degree = config.parallelism.expert_parallel_degree, experts = config.model.num_experts;
  const bool known = is_resolved(config.model);
  found.require(!known || experts > 0 || degree == 1,
                "parallelism.expert_parallel_degree ({}): the model has no experts to share; set it to 1", degree);
  if (known && experts > 0) {
    found.require(experts % degree == 0, "parallelism.expert_parallel_degree ({}) must divide model.num_experts ({})",
                  degree, experts);
  }
  if (data && *data % degree != 0) {
    const int64_t fits = known && experts > 0 ? std::gcd(*data, experts) : *data;
    found.require(
        false,
        "parallelism.expert_parallel_degree ({}) must divide the {} data ranks (replicate {} × shard {}): set "
        "it to one of {}",
        degree, *data, config.parallelism.data_parallel_replicate_degree,
        *data / config.parallelism.data_parallel_replicate_degree, divisors_of(fits));
  }
}

void check_batch(const TrainingStage& stage, int64_t data, Findings& found) {
  const RunConfig& config = stage.config;
  const auto& train = config.train;
  const std::string where = where_of(stage);
  const int64_t unit = product({data, train.micro_batch_size});
  if (train.micro_batch_not_set && train.global_batch_size % data != 0)
    found.require(false, "{}{} ({}) is not a multiple of {} data ranks: set it to {}", where, stage.batch_key,
                  train.global_batch_size, data, multiples_beside(train.global_batch_size, data));
  else
    found.require(train.global_batch_size % unit == 0,
                  "{}{} ({}) is not a multiple of {} data ranks × train.micro_batch_size ({}) = {}: set it to {}",
                  where, stage.batch_key, train.global_batch_size, data, train.micro_batch_size, unit,
                  multiples_beside(train.global_batch_size, unit));
  if (config.moe.balance == Balance::kNone) return;
  const int64_t group = config.moe.balance_group, micro = train.micro_batch_size;
  const bool whole = micro % group == 0 || group % micro == 0;
  found.require(whole,
                "{}moe.balance_group ({}) must divide train.micro_batch_size ({}), or be a multiple of it, which spans "
                "data ranks",
                where, group, micro);
  found.require(
      !whole || data % count_balance_ranks(config) == 0,
      "{}moe.balance_group ({}) spans {} data ranks of train.micro_batch_size ({}) each, which does not divide "
      "the {} data ranks: a group would end in the middle of them; set it to {} times one of {}",
      where, group, count_balance_ranks(config), micro, data, micro, divisors_of(data));
}

// Groups of ranks are made once, for the run.
void check_balance_over_stages(const std::vector<TrainingStage>& stages, Findings& found) {
  for (const auto& stage : stages) {
    const int64_t here = count_balance_ranks(stage.config), first = count_balance_ranks(stages[0].config);
    found.require(
        here == first,
        "{}: moe.balance_group ({}) spans {} data ranks of train.micro_batch_size ({}), and {} in {}: give the "
        "stages equal micro_batch_size, or a balance_group within all of them",
        stage.name, stage.config.moe.balance_group, here, stage.config.train.micro_batch_size, first, stages[0].name);
  }
}

void check_topology(const TopologyConfig& topology, int64_t world_size, Findings& found) {
  const int64_t per_node = topology.ranks_per_node;
  found.require(
      per_node == 0 || world_size <= per_node || world_size % per_node == 0,
      "topology.ranks_per_node ({}) must divide the {} ranks of this job; set it to 0 to go by the hosts' names",
      per_node, world_size);
}

// Checks the microbatches of each training phase. A fault of all phases is reported once.
void check_schedule(const ParallelismConfig& p, const std::vector<TrainingStage>& stages, std::optional<int64_t> data,
                    Findings& found) {
  const auto ranks = static_cast<int>(std::min<int64_t>(p.pipeline_parallel_degree, kMostRanks)),
             chunks = static_cast<int>(std::min<int64_t>(p.virtual_stages, kMostRanks));
  std::vector<std::vector<std::string>> lines;
  for (const auto& stage : stages) {
    const auto& train = stage.config.train;
    const int64_t unit = data ? product({*data, train.micro_batch_size}) : 0;
    const bool whole = unit > 0 && train.global_batch_size % unit == 0;
    // If the batch does not fit the ranks, which is reported elsewhere, assume as many microbatches as any schedule
    // takes.
    lines.push_back(find_schedule_faults(p.pipeline_schedule.word(), ranks, chunks,
                                         whole ? train.global_batch_size / unit : ranks));
  }
  const auto in_all = [&](const std::string& line) {
    return std::ranges::all_of(lines, [&](const auto& of) { return std::ranges::count(of, line) > 0; });
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const auto& line : lines[i]) {
      if (in_all(line)) {
        found.require(i > 0, "{}", line);
      } else {
        found.require(false, "{}: {}", stages[i].name, line);
      }
    }
  }
}

// The gradient noise scale compares parts of a step's gradient: those of data ranks, or the first microbatch's.
void check_noise_scale(const RunConfig& config, const std::vector<TrainingStage>& stages, int64_t data,
                       Findings& found) {
  if (config.metrics.noise_scale_interval == 0 || data > 1) return;
  found.require(
      config.parallelism.virtual_stages == 1,
      "metrics.noise_scale_interval ({}) with parallelism.virtual_stages ({}) needs 2 data ranks or more: with "
      "one, the first microbatch's gradient is measured before the next is added, and these pipeline ranks "
      "compute several microbatches by turns; set it to 0",
      config.metrics.noise_scale_interval, config.parallelism.virtual_stages);
  for (const auto& stage : stages) {
    const TrainConfig& train = stage.config.train;
    found.require(
        train.micro_batch_size < train.global_batch_size,
        "{}metrics.noise_scale_interval ({}) compares parts of a step, and on one data rank there is one part: "
        "set train.micro_batch_size ({}) to half of {} ({}) or less, or the interval to 0",
        where_of(stage), config.metrics.noise_scale_interval, train.micro_batch_size, stage.batch_key,
        train.global_batch_size);
  }
}

// Checks what is divided among tensor ranks and among pipeline ranks.
void check_cuts(const RunConfig& config, const std::vector<TrainingStage>& stages, Findings& found) {
  const auto& p = config.parallelism;
  if (is_resolved(config.model)) {
    for (const auto& line : find_split_faults(config.model, p)) found.require(false, "{}", line);
    if (find_contradictions(config.model).empty()) {
      for (const auto& line : find_tensor_faults(config.model, p.tensor_parallel_degree))
        found.require(false, "{}", line);
    }
  }
  std::vector<int64_t> looked_at;
  for (const auto& stage : stages) {
    const int64_t seq_len = stage.config.data.seq_len;
    if (std::ranges::count(looked_at, seq_len) > 0) continue;
    looked_at.push_back(seq_len);
    for (const auto& line : find_sequence_faults(p, seq_len)) found.require(false, "{}", line);
  }
}

}  // namespace

std::optional<int64_t> resolve_shard_degree(const ParallelismConfig& p, int64_t world_size) {
  if (p.data_parallel_shard_degree != -1) return p.data_parallel_shard_degree;
  const int64_t others = other_degrees(p);
  if (world_size % others != 0) return std::nullopt;
  return world_size / others;
}

int64_t count_balance_ranks(const RunConfig& config) {
  if (config.moe.balance == Balance::kNone) return 1;
  return std::max<int64_t>(1, config.moe.balance_group / config.train.micro_batch_size);
}

std::vector<std::string> find_layout_faults(const RunConfig& config, int world_size) {
  Findings found;
  const auto& p = config.parallelism;
  // A configuration that was read has these ranges; one that a program made may not.
  for (const int64_t count :
       {int64_t{world_size}, p.data_parallel_replicate_degree, p.expert_parallel_degree, p.tensor_parallel_degree,
        p.pipeline_parallel_degree, p.virtual_stages, config.train.micro_batch_size, config.train.global_batch_size,
        config.moe.balance_group}) {
    if (count < 1) return {"ranks, degrees of parallelism, batch sizes and moe.balance_group must be 1 or more"};
  }
  if (p.data_parallel_shard_degree < 1 && p.data_parallel_shard_degree != -1)
    return {fmt::format("parallelism.data_parallel_shard_degree is {}; it must be 1 or more, or -1 for what is left",
                        p.data_parallel_shard_degree)};
  const int64_t least = product(
      {p.pipeline_parallel_degree, p.tensor_parallel_degree,
       std::max(p.expert_parallel_degree,
                product({p.data_parallel_replicate_degree, std::max<int64_t>(1, p.data_parallel_shard_degree)}))});
  if (world_size == 1 && least > 1) {
    return {
        fmt::format("the degrees of parallelism need {} ranks or more, and there is one: start the command with "
                    "`mpirun -n {}`, or set the degrees to 1",
                    least, least)};
  }
  check_world(p, world_size, found);
  for (const auto& line : find_mapping_faults(p.mapping)) found.require(false, "{}", line);
  const auto shard = resolve_shard_degree(p, world_size);
  std::optional<int64_t> data;
  if (shard) data = product({p.data_parallel_replicate_degree, *shard});
  check_experts(config, data, found);
  const auto stages = training_stages(config);
  for (const auto& stage : stages) {
    if (data) check_batch(stage, *data, found);
  }
  if (data) check_noise_scale(config, stages, *data, found);
  check_balance_over_stages(stages, found);
  check_cuts(config, stages, found);
  check_schedule(p, stages, data, found);
  check_topology(config.topology, world_size, found);
  return found.take();
}

// The conditions of a tensor degree on the model, which its blocks know, and of sequence parallelism on the length of
// an instance.

std::vector<std::string> find_tensor_faults(const ModelConfig& model, int64_t degree) {
  Findings found;
  if (degree == 1) return found.take();
  for (const LayerSpec& layer : make_model_spec(model).layers) {
    layer.attention.check_tensor_ranks(degree, found);
    std::visit([&](const auto& block) { block.check_tensor_ranks(degree, found); }, layer.feed_forward);
  }
  found.require(model.vocab_size >= degree,
                "parallelism.tensor_parallel_degree ({}) is more than model.vocab_size ({}): each rank holds rows of "
                "the embedding; lower it",
                degree, model.vocab_size);
  std::vector<std::string> lines;  // once for all layers that are alike
  for (std::string& line : found.take())
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> find_sequence_faults(const ParallelismConfig& p, int64_t seq_len) {
  Findings found;
  found.require(!p.sequence_parallel || seq_len <= 0 || seq_len % p.tensor_parallel_degree == 0,
                "parallelism.sequence_parallel: parallelism.tensor_parallel_degree ({}) must divide data.seq_len ({}), "
                "of whose tokens each rank has its part; choose another degree, prepare instances of a multiple of {}, "
                "or turn it off",
                p.tensor_parallel_degree, seq_len, p.tensor_parallel_degree);
  return found.take();
}

}  // namespace athanor::inline layout
