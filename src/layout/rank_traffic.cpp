// One rank's share of the traffic of a step: the table of traffic.h, row by row.

#include <algorithm>
#include <bit>

#include "config/families.h"
#include "config/precision.h"
#include "layout/holding.h"
#include "layout/schedule.h"
#include "layout/shards.h"
#include "layout/stages.h"
#include "layout/traffic.h"

namespace athanor::inline layout {
namespace {

constexpr double kSmallAllReduce = 8 << 10;  // as in wire/index_tree.h: smaller sums go along the tree

// Children of a member in the tree of all sums.
double num_children(size_t index, size_t size) {
  double children = 0;
  for (size_t step = 1; index + step < size && (index & step) == 0; step <<= 1) ++children;
  return children;
}

// A microbatch on a rank, in numbers that are multiplied.
struct MicrobatchShape {
  double tokens;      // N: those that matrix products take
  double own_tokens;  // those that the residual stream has: N, or N / tensor under sequence_parallel
  double hidden, width, choices, experts;  // width: bytes of an activation element
  double sent = 0;  // tokens sent to the expert group, the rank itself included, once to each rank that needs them

  MicrobatchShape(const RunConfig& config, const Layout& layout, int64_t seq_len, bool shares_tokens);
  double stream() const { return tokens * hidden * width; }        // a tensor of all tokens
  double residual() const { return own_tokens * hidden * width; }  // a tensor of the residual stream
};

MicrobatchShape::MicrobatchShape(const RunConfig& config, const Layout& layout, int64_t seq_len, bool shares_tokens)
    : tokens(static_cast<double>(config.train.micro_batch_size * seq_len)),
      own_tokens(shares_tokens ? tokens / layout.tensor() : tokens),
      hidden(static_cast<double>(config.model.hidden_size)),
      width(static_cast<double>(bytes_of(precision_of(config).compute))),
      choices(static_cast<double>(config.model.num_experts_per_tok)),
      experts(static_cast<double>(config.model.num_experts)) {
  if (layout.expert() == 1) return;
  const ModelConfig& m = config.model;
  const double reached =
      config.moe.dispatch == DispatchKind::kAllGather
          ? 1
          : probability_of_any(m.num_experts, m.num_experts / layout.expert(), m.num_experts_per_tok);
  sent = tokens * layout.expert() * reached;
}

class Counter {
 public:
  Counter(const RunConfig& config, const Layout& layout, int rank, int64_t seq_len)
      : config_(config), layout_(layout), rank_(rank),
        sequence_(layout.tensor() > 1 && config.parallelism.sequence_parallel),
        shape_(config, layout, seq_len, sequence_), microbatches_(static_cast<double>(layout.microbatches())) {}

  void gradients_and_weights();
  void layers();
  void vocabulary();
  void stages();
  void tokens();
  void balance();
  void losses();

  std::vector<RankTraffic> lines;

 private:
  struct Group {
    std::vector<int> ranks;
    size_t index;
    double size() const { return static_cast<double>(ranks.size()); }
  };
  const Group& group(GroupKind kind) {
    auto& cached = groups_[kind];
    if (cached.ranks.empty()) {
      cached.ranks = layout_.group_of(kind, rank_);
      cached.index = static_cast<size_t>(std::ranges::find(cached.ranks, rank_) - cached.ranks.begin());
    }
    return cached;
  }
  double size(GroupKind kind) { return group(kind).size(); }
  RankTraffic& line(TrafficKind what, Collective collective, GroupKind kind, int peer = -1) {
    for (RankTraffic& l : lines) {
      if (l.what == what && l.collective == collective && l.group == kind && l.peer == peer) return l;
    }
    return lines.emplace_back(RankTraffic{what, collective, kind, peer});
  }
  // Adds a row; `each` is the number of bytes that the rank sends in a call.
  void add(TrafficKind what, Collective collective, GroupKind kind, double calls, double each) {
    if (size(kind) < 2 || calls == 0) return;
    RankTraffic& l = line(what, collective, kind);
    l.calls += calls;
    l.bytes += calls * each;
  }
  void all_reduce(TrafficKind what, GroupKind kind, double calls, double bytes) {
    const Group& g = group(kind);
    const double along_tree = bytes * (num_children(g.index, g.ranks.size()) + (g.index > 0 ? 1 : 0));
    add(what, Collective::kAllReduce, kind, calls,
        bytes <= kSmallAllReduce ? along_tree : 2 * bytes * (g.size() - 1) / g.size());
  }
  // Adds a reduce-scatter or all-gather; b is the size of the larger tensor.
  void scatter(TrafficKind what, Collective collective, GroupKind kind, double calls, double bytes) {
    add(what, collective, kind, calls, bytes * (size(kind) - 1) / size(kind));
  }
  // Adds the sum of a stream over tensor ranks, or the gather and reduce-scatter of its tokens.
  void stream_sum(TrafficKind what, double calls) {
    if (!sequence_) return all_reduce(what, GroupKind::kTensor, calls, shape_.stream());
    scatter(what, Collective::kReduceScatter, GroupKind::kTensor, calls, shape_.stream());
  }
  void stream_gather(TrafficKind what, double calls) {
    if (sequence_) scatter(what, Collective::kAllGather, GroupKind::kTensor, calls, shape_.stream());
  }
  void sum_over_replicas(Replication replication, TrafficKind what, double calls, double owned);

  const RunConfig& config_;
  const Layout& layout_;
  int rank_;
  bool sequence_;
  MicrobatchShape shape_;
  double microbatches_;
  std::map<GroupKind, Group> groups_;
};

void Counter::sum_over_replicas(Replication replication, TrafficKind what, double calls, double owned) {
  if (!replication.replicas()) return;
  const GroupKind replicas = *replication.replicas();
  if (replication.replicas_add()) return all_reduce(what, replicas, calls, owned / calls);
  const Group& g = group(replicas);
  add(what, Collective::kBroadcast, replicas, calls, owned / calls * num_children(g.index, g.ranks.size()));
}

void Counter::gradients_and_weights() {
  const ShardingKind sharding = config_.parallelism.sharding;
  const auto reduced = static_cast<double>(bytes_of(precision_of(config_).reduce));
  const double read = shape_.width;
  for (const auto& [replication, elements] : count_held_by_replication(config_, layout_, rank_)) {
    const ShardRule rule = shard_rule(sharding, replication);
    const double b = static_cast<double>(elements) * reduced, w = static_cast<double>(elements) * read;
    const double calls =
        std::max(1.0, std::round(static_cast<double>(elements) * 4 / config_.parallelism.bucket_mb / 1e6));
    const TrafficKind gradients{TrafficPurpose::kGradients, replication},
        weights{TrafficPurpose::kWeights, replication};
    if (rule.scatter) {
      scatter(gradients, Collective::kReduceScatter, *rule.scatter, calls, b / calls);
    } else {
      all_reduce(gradients, rule.sum, calls, b / calls);
    }
    const double owned = rule.gather ? b / size(*rule.gather) : b;
    if (rule.second == ShardRule::Second::kAllGather)
      scatter(gradients, Collective::kAllGather, *rule.copies, calls, owned / calls);
    if (rule.second == ShardRule::Second::kAllReduce) all_reduce(gradients, *rule.copies, calls, owned / calls);
    sum_over_replicas(replication, gradients, calls, owned);
    if (rule.gather) scatter(weights, Collective::kAllGather, *rule.gather, calls, w / calls);
  }
}

void Counter::layers() {
  if (layout_.tensor() == 1) return;
  const RecomputeKinds again = parse_recompute(config_.parallelism.recompute);
  const TrafficKind what{TrafficPurpose::kLayers};
  for (const StageLayers& stage :
       stages_of(config_.model, config_.parallelism, layout_.coordinate(rank_, Axis::kPipeline))) {
    for (int64_t l = stage.first; l < stage.end; ++l) {
      for (const bool part_again : {again.attention, again.moe}) {
        const double forwards = again.layer ? 2 : 1;
        stream_gather(what, microbatches_ * (forwards + (!again.layer && (part_again || again.norm) ? 1 : 0) + 1));
        stream_sum(what, microbatches_ * (forwards + 1));
      }
      if (family_of(config_.model).qk_norm == QkNorm::kWhole)
        all_reduce(what, GroupKind::kTensor, microbatches_ * (again.attention || again.layer ? 3 : 2),
                   8 * shape_.tokens);
      if (config_.model.is_sparse_layer(l))
        all_reduce(what, GroupKind::kTensor, microbatches_, 4 * shape_.tokens * shape_.choices);
    }
  }
}

void Counter::vocabulary() {
  if (layout_.tensor() == 1) return;
  const TrafficKind what{TrafficPurpose::kVocabulary};
  for (const StageLayers& stage :
       stages_of(config_.model, config_.parallelism, layout_.coordinate(rank_, Axis::kPipeline))) {
    if (stage.embeds) {
      stream_sum(what, microbatches_);
      stream_gather(what, microbatches_);
    }
    if (!stage.has_head) continue;
    stream_sum(what, microbatches_);
    stream_gather(what, microbatches_);
    const double chunk = std::min(static_cast<double>(config_.train.loss_chunk_tokens), shape_.tokens);
    const double chunks = microbatches_ * std::ceil(shape_.tokens / chunk);
    all_reduce(what, GroupKind::kTensor, chunks, 4 * chunk);
    all_reduce(what, GroupKind::kTensor, chunks, 8 * chunk);
  }
}

void Counter::stages() {
  const int ranks = layout_.pipeline(), chunks = static_cast<int>(config_.parallelism.virtual_stages);
  if (ranks < 2) return;
  const Group& g = group(GroupKind::kPipeline);
  const auto send = [&](int stage, int to) {
    if (to < 0 || to >= ranks * chunks || stage % ranks != static_cast<int>(g.index)) return;
    RankTraffic& l = line({TrafficPurpose::kStages}, Collective::kSend, GroupKind::kPipeline, to % ranks);
    l.calls += microbatches_;
    l.bytes += microbatches_ * shape_.residual();
  };
  for (int stage = 0; stage < ranks * chunks; ++stage) send(stage, stage + 1), send(stage, stage - 1);
}

void Counter::tokens() {
  if (layout_.expert() == 1) return;
  const RecomputeKinds again = parse_recompute(config_.parallelism.recompute);
  double sparse = 0;
  for (const StageLayers& stage :
       stages_of(config_.model, config_.parallelism, layout_.coordinate(rank_, Axis::kPipeline)))
    for (int64_t l = stage.first; l < stage.end; ++l) sparse += config_.model.is_sparse_layer(l);
  const double n = size(GroupKind::kExpert), rows = shape_.sent * (n - 1) / n, row = shape_.hidden * shape_.width;
  const double forwards = microbatches_ * sparse * (again.moe || again.layer ? 2 : 1),
               backwards = microbatches_ * sparse;
  const double choices = 8 * shape_.choices * rows, weights = 4 * shape_.choices * rows;
  const auto calls = static_cast<double>(std::max<int64_t>(1, config_.moe.dispatch_chunks));
  if (config_.moe.dispatch == DispatchKind::kAllGather) {
    add({TrafficPurpose::kTokens}, Collective::kAllGather, GroupKind::kExpert, forwards, choices);
    add({TrafficPurpose::kTokens}, Collective::kAllGather, GroupKind::kExpert, calls * (forwards + backwards),
        rows * row / calls);
    add({TrafficPurpose::kTokens}, Collective::kReduceScatter, GroupKind::kExpert, calls * (forwards + backwards),
        rows * row / calls);
    add({TrafficPurpose::kTokens}, Collective::kReduceScatter, GroupKind::kExpert, backwards, weights);
    return;
  }
  // Forward and backward of a layer are equally often; a recomputation knows the counts.
  add({TrafficPurpose::kTokens}, Collective::kAllToAll, GroupKind::kExpert, backwards, 8 * calls * (n - 1));
  add({TrafficPurpose::kTokens}, Collective::kAllToAll, GroupKind::kExpert, forwards, choices);
  add({TrafficPurpose::kTokens}, Collective::kAllToAll, GroupKind::kExpert, 2 * calls * (forwards + backwards),
      rows * row / calls);
  add({TrafficPurpose::kTokens}, Collective::kAllToAll, GroupKind::kExpert, backwards, weights);
}

void Counter::balance() {
  const auto& moe = config_.moe;
  if (moe.balance == Balance::kNone || moe.balance == Balance::kForcedUniform || size(GroupKind::kBalance) < 2) return;
  double sparse = 0;
  for (const StageLayers& stage :
       stages_of(config_.model, config_.parallelism, layout_.coordinate(rank_, Axis::kPipeline)))
    for (int64_t l = stage.first; l < stage.end; ++l) sparse += config_.model.is_sparse_layer(l);
  const double choice_bytes = moe.balance == Balance::kCapacity && moe.capacity_order == CapacityOrder::kScore ? 8 : 4;
  add({TrafficPurpose::kBalance}, Collective::kAllGather, GroupKind::kBalance, microbatches_ * sparse,
      choice_bytes * shape_.tokens * shape_.choices * (size(GroupKind::kBalance) - 1));
}

// Adds the sums of losses and router counts. The gradient's norm and the number of changed weights are a few bytes
// more.
void Counter::losses() {
  const auto layers = static_cast<double>(config_.model.num_sparse_layers());
  const double dispatched = layout_.expert() > 1 ? size(GroupKind::kExpert) : 0;
  for (const GroupKind kind : {GroupKind::kPipeline, GroupKind::kData}) {
    all_reduce({TrafficPurpose::kLosses}, kind, 1, 8 * (3 + layers));
    all_reduce({TrafficPurpose::kLosses}, kind, 1, 8 * (1 + layers * (2 * shape_.experts + dispatched + 3)));
  }
}

}  // namespace

std::vector<RankTraffic> count_rank_traffic(const RunConfig& config, const Layout& layout, int rank, int64_t seq_len) {
  Counter counter(config, layout, rank, seq_len);
  counter.gradients_and_weights();
  counter.layers();
  counter.vocabulary();
  counter.stages();
  counter.tokens();
  counter.balance();
  counter.losses();
  return std::move(counter.lines);
}

}  // namespace athanor::inline layout
