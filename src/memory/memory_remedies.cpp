#include "memory/memory_remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"
#include "layout/layout.h"

namespace athanor::inline memory {
namespace {

struct Change {
  std::string setting;
  RunConfig config;
};

std::vector<Change> smaller_microbatches(const RunConfig& config, const DeviceRank& of) {
  std::vector<Change> changes;
  for (int64_t size = config.train.micro_batch_size - 1; size > 0; --size) {
    Change change{fmt::format("train.micro_batch_size = {}", size), config};
    change.config.train.micro_batch_size = size;
    if (find_layout_faults(change.config, of.ranks).empty()) changes.push_back(std::move(change));
  }
  return changes;
}

// Whole layers again are the strongest form; before that one kind of module is added to those that are set.
std::vector<Change> more_recompute(const RunConfig& config, const DeviceRank&) {
  const auto& now = config.parallelism.recompute;
  const auto has = [&](RecomputeKind kind) { return std::ranges::count(now, word_of(kind)) > 0; };
  std::vector<Change> changes;
  if (has(RecomputeKind::kLayer)) return changes;
  const auto add = [&](std::vector<std::string> kinds) {
    Change change{"parallelism.recompute = [\"" + join(kinds, "\", \"") + "\"]", config};
    change.config.parallelism.recompute = std::move(kinds);
    changes.push_back(std::move(change));
  };
  for (const RecomputeKind kind : {RecomputeKind::kNorm, RecomputeKind::kAttention, RecomputeKind::kMoe}) {
    if (has(kind) || (kind == RecomputeKind::kMoe && config.model.num_sparse_layers() == 0)) continue;
    auto kinds = now;
    kinds.push_back(word_of(kind));
    add(kinds);
  }
  add({word_of(RecomputeKind::kLayer)});
  return changes;
}

std::vector<Change> shorter_loss_chunks(const RunConfig& config, const DeviceRank&) {
  constexpr int64_t kLeast = 64;  // shorter ones make the products of the output layer slow
  std::vector<Change> changes;
  for (int64_t tokens = config.train.loss_chunk_tokens / 2; tokens >= kLeast; tokens /= 2) {
    Change change{fmt::format("train.loss_chunk_tokens = {}", tokens), config};
    change.config.train.loss_chunk_tokens = tokens;
    changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<Change> no_graphs(const RunConfig& config, const DeviceRank&) {
  if (!config.train.cuda_graphs) return {};
  Change change{"train.cuda_graphs = false", config};
  change.config.train.cuda_graphs = false;
  return {std::move(change)};
}

// With allgather a device has room for all tokens of the expert group, whichever experts they choose.
std::vector<Change> other_dispatch(const RunConfig& config, const DeviceRank&) {
  if (config.moe.dispatch != DispatchKind::kAllGather || config.model.num_sparse_layers() == 0) return {};
  Change change{"moe.dispatch = \"all_to_all\"", config};
  change.config.moe.dispatch = DispatchKind::kAllToAll;
  return {std::move(change)};
}

constexpr std::array kSettings = {smaller_microbatches, more_recompute, shorter_loss_chunks, no_graphs, other_dispatch};

Change all_at_their_strongest(RunConfig config, const DeviceRank& of) {
  std::vector<std::string> settings;
  for (const auto& changes_of : kSettings) {
    const auto changes = changes_of(config, of);
    if (changes.empty()) continue;
    settings.push_back(changes.back().setting);
    config = changes.back().config;
  }
  return {join(settings, " and "), std::move(config)};
}

TightJob tight_job(const RunConfig& config, double bytes, const DeviceRank& of) {
  int64_t of_host = of.hosts.empty() ? of.ranks : 0;
  for (const int host : of.hosts) of_host = std::max<int64_t>(of_host, std::ranges::count(of.hosts, host));
  return {of.ranks, static_cast<int>(of_host), bytes, device_place(config, {})};
}

}  // namespace

MemoryNeed need_of_device(const RunConfig& config, const DeviceRank& of) {
  return memory_if_known(config, Layout(config, of.ranks), of.rank, device_place(config, of.hosts));
}

std::vector<std::vector<MemoryRemedy>> memory_remedies(const RunConfig& config, const DeviceRank& of) {
  const double now = need_of_device(config, of).total();
  std::vector<std::vector<MemoryRemedy>> remedies;
  for (const auto& changes_of : kSettings) {
    auto& of_setting = remedies.emplace_back();
    for (const Change& change : changes_of(config, of)) {
      const MemoryNeed need = need_of_device(change.config, of);
      if (need.total() < now) of_setting.push_back({change.setting, need});
    }
    std::ranges::stable_sort(of_setting, std::ranges::greater(), [](const auto& each) { return each.need.total(); });
  }
  return remedies;
}

std::string what_would_fit(const RunConfig& config, double bytes, const DeviceRank& of) {
  std::vector<std::string> fitting;
  for (const auto& of_setting : memory_remedies(config, of)) {
    const auto mildest = std::ranges::find_if(of_setting, [&](const auto& each) { return each.need.total() <= bytes; });
    if (mildest != of_setting.end())
      fitting.push_back(fmt::format("{} ({})", mildest->setting, format_bytes(mildest->need.total())));
  }
  const Change strongest = all_at_their_strongest(config, of);
  if (const double together = need_of_device(strongest.config, of).total(); fitting.empty() && together <= bytes)
    fitting.push_back(fmt::format("{} together ({})", strongest.setting, format_bytes(together)));
  const TightJob job = tight_job(config, bytes, of);
  if (const auto more = fewest_ranks(config, job)) fitting.push_back(more->text(of.ranks));
  if (!fitting.empty()) return join(fitting, " or ") + " would fit";
  if (const auto more = fewest_ranks(strongest.config, job))
    return fmt::format("{} together on {} would fit", strongest.setting, more->text(of.ranks));
  return "no setting makes it fit, and no number of ranks along one axis: a smaller model would";
}

std::string what_saves_most(const RunConfig& config, const DeviceRank& of) {
  const double now = need_of_device(config, of).total();
  std::vector<MemoryRemedy> best;
  for (const auto& of_setting : memory_remedies(config, of)) {
    if (of_setting.empty()) continue;
    const auto enough =
        std::ranges::find_if(of_setting, [&](const auto& each) { return each.need.total() <= 0.9 * now; });
    best.push_back(enough == of_setting.end() ? of_setting.back() : *enough);
  }
  if (best.empty()) return "a smaller model";
  std::ranges::stable_sort(best, std::ranges::less(), [](const auto& each) { return each.need.total(); });
  std::vector<std::string> parts;
  for (const MemoryRemedy& each : best)
    parts.push_back(fmt::format("{} ({} less)", each.setting, format_bytes(now - each.need.total())));
  return join(parts, ", ");
}

std::string describe_update(const MemoryNeed& need) {
  if (need.update_bytes == 0) return "";
  return fmt::format(", or, when the activations are gone, {} of whole matrices in Muon's update",
                     format_bytes(need.update_bytes));
}

std::string describe_need(const RunConfig& config, const DeviceRank& of, const MemoryNeed& need) {
  const StateBytes state =
      count_state_bytes(config, Layout(config, of.ranks), of.rank, plan_optimizers(config.optimizer));
  const auto bytes = [](int64_t count) { return format_bytes(static_cast<double>(count)); };
  std::string text =
      fmt::format("{} of weights, {} of masters and moments, {} of gradients, {} of activations, {} of scratch",
                  bytes(state.weights), bytes(state.master + state.optimizer), bytes(state.gradient),
                  format_bytes(need.activation_bytes), format_bytes(need.transient_bytes));
  text += describe_update(need);
  const auto add = [&](double part, const char* what) {
    if (part > 0) text += fmt::format(", {} {}", format_bytes(part), what);
  };
  add(need.graph_bytes, "next to the recorded graph");
  add(need.communicator_bytes, "of buffers of communicators");
  add(need.allocator_bytes, "that the allocator keeps");
  add(need.workspace_bytes, "of workspaces of cuBLAS");
  return text;
}

namespace {

constexpr int64_t kMostRanks = 1 << 16;  // larger jobs are planned by dry runs

struct Degree {
  const char* name;
  int64_t ParallelismConfig::*of;
};
constexpr Degree kShardDegree = {"parallelism.data_parallel_shard_degree",
                                 &ParallelismConfig::data_parallel_shard_degree};
constexpr Degree kExpertDegree = {"parallelism.expert_parallel_degree", &ParallelismConfig::expert_parallel_degree};
constexpr Degree kTensorDegree = {"parallelism.tensor_parallel_degree", &ParallelismConfig::tensor_parallel_degree};
constexpr Degree kPipelineDegree = {"parallelism.pipeline_parallel_degree",
                                    &ParallelismConfig::pipeline_parallel_degree};

class Candidates {
 public:
  Candidates(const RunConfig& config, const Layout& now) : config_(config), now_(now) {
    const ModelConfig& model = config.model;
    const int64_t most_data = config.train.global_batch_size / config.train.micro_batch_size;
    for (int64_t shard = now.shard() + 1; shard * now.replicate() <= most_data; ++shard) {
      if (most_data % (shard * now.replicate()) == 0) add(kShardDegree, shard, shard);
    }
    for (int64_t expert = now.expert() + 1; expert <= model.num_experts; ++expert) {
      if (model.num_experts % expert == 0) add(kExpertDegree, expert, shard_that_holds(expert));
    }
    add_all(kTensorDegree, now.tensor(), model.num_attention_heads);
    add_all(kPipelineDegree, now.pipeline(), model.num_hidden_layers);
    std::ranges::stable_sort(all_, std::ranges::less(), &RankRemedy::ranks);
  }

  const std::vector<RankRemedy>& all() const { return all_; }

 private:
  // Each degree once with as many ranks as now, and fewer of them along the shard axis, and once with more ranks.
  void add_all(const Degree& degree, int64_t now, int64_t most) {
    for (int64_t value = now + 1; value <= most; ++value) {
      if (now_.shard() * now % value == 0) add(degree, value, now_.shard() * now / value);
      add(degree, value, now_.shard());
    }
  }

  // The smallest shard degree, not below that of now, whose data ranks the expert degree divides.
  int64_t shard_that_holds(int64_t expert) const {
    int64_t shard = now_.shard();
    while (shard * now_.replicate() % expert != 0) ++shard;
    return shard;
  }

  void add(const Degree& degree, int64_t value, int64_t shard) {
    RankRemedy remedy{.setting = fmt::format("{} = {}", degree.name, value), .config = config_};
    ParallelismConfig& p = remedy.config.parallelism;
    p.*degree.of = value;
    const bool follows = p.data_parallel_shard_degree == -1;
    if (degree.of != kShardDegree.of && !follows && shard != now_.shard())
      remedy.setting += fmt::format(" and {} = {}", kShardDegree.name, shard);
    if (degree.of == kShardDegree.of || !follows) p.data_parallel_shard_degree = shard;
    const int64_t ranks = shard * now_.replicate() * p.tensor_parallel_degree * p.pipeline_parallel_degree;
    if (ranks > kMostRanks) return;
    remedy.ranks = static_cast<int>(ranks);
    all_.push_back(std::move(remedy));
  }

  const RunConfig& config_;
  const Layout& now_;
  std::vector<RankRemedy> all_;
};

// The hosts of a larger job are as full as those of now; the number of GPUs of a host is not known if there is one
// only, and eight is what most have.
std::vector<int> hosts_of(const RankRemedy& remedy, const TightJob& job) {
  if (remedy.config.topology.ranks_per_node > 0) return planned_hosts(remedy.config.topology, remedy.ranks);
  const int of_one = job.ranks_of_host < job.ranks ? job.ranks_of_host : std::max(job.ranks, 8);
  std::vector<int> hosts;
  for (int rank = 0; rank < remedy.ranks; ++rank) hosts.push_back(rank / of_one);
  return hosts;
}

bool fits(RankRemedy& remedy, const TightJob& job) {
  if (!find_layout_faults(remedy.config, remedy.ranks).empty()) return false;
  const Layout layout(remedy.config, remedy.ranks);
  PlannedPlace place = job.place;
  if (place.on_device()) place.hosts = hosts_of(remedy, job);
  const std::vector<int> ranks = ranks_that_differ(remedy.config, layout);
  const auto state_of = [&](int rank) {
    return static_cast<double>(
        count_state_bytes(remedy.config, layout, rank, plan_optimizers(remedy.config.optimizer)).total());
  };
  if (std::ranges::any_of(ranks, [&](int rank) { return state_of(rank) > job.bytes; })) return false;
  remedy.need_bytes = 0;
  for (const int rank : ranks) {
    const double need = memory_of_rank(remedy.config, layout, rank, place).total();
    if (need > job.bytes) return false;
    remedy.need_bytes = std::max(remedy.need_bytes, need);
  }
  return true;
}

}  // namespace

std::string RankRemedy::text(int ranks_now) const {
  return fmt::format("{}{} ranks with {} ({} on each)", ranks == ranks_now ? "the same " : "", ranks, setting,
                     format_bytes(need_bytes));
}

std::optional<RankRemedy> fewest_ranks(const RunConfig& config, const TightJob& job) {
  const Layout now(config, job.ranks);
  const Candidates candidates(config, now);
  for (RankRemedy remedy : candidates.all()) {
    if (fits(remedy, job)) return remedy;
  }
  return {};
}

}  // namespace athanor::inline memory
