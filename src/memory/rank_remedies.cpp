#include "memory/rank_remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace athanor::inline memory {
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
  const std::vector<int> hosts = hosts_of(remedy, job);
  const int64_t seq_len = remedy.config.data.seq_len;
  remedy.need_bytes = 0;
  for (const int rank : layout.group_of(GroupKind::kPipeline, 0)) {  // tensor ranks have equal parts
    const double need = estimate_train_memory(remedy.config, seq_len, layout, rank, job.multiplier, hosts).total();
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
