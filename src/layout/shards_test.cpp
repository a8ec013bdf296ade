#include "layout/shards.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace athanor::shards_test {
namespace {

struct Degrees {
  int replicate, shard, expert, tensor, pipeline;
};
const std::vector<Degrees> kDegrees = {{1, 1, 1, 1, 1}, {1, 4, 2, 1, 1}, {2, 2, 4, 1, 1}, {3, 4, 2, 1, 2},
                                       {2, 3, 2, 4, 1}, {1, 2, 2, 4, 3}, {4, 1, 4, 2, 2}};

RunConfig config_of(const Degrees& d, const std::string& sharding, const std::string& mapping) {
  RunConfig config;
  config.model.num_hidden_layers = 6;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;  // fewer than tensor ranks in some layouts
  config.model.num_experts = 4;
  config.model.num_experts_per_tok = 2;
  config.model.tie_word_embeddings = true;
  auto& p = config.parallelism;
  p.data_parallel_replicate_degree = d.replicate;
  p.data_parallel_shard_degree = d.shard;
  p.expert_parallel_degree = d.expert;
  p.tensor_parallel_degree = d.tensor;
  p.pipeline_parallel_degree = d.pipeline;
  p.sharding = sharding;
  p.mapping = mapping;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = d.replicate * d.shard * 12;
  return config;
}

template <class Visit>
void for_each_layout(const Visit& visit) {
  for (const Degrees& d : kDegrees) {
    for (const char* sharding : {"none", "optimizer", "ep_aware", "hierarchical"}) {
      for (const char* mapping : {"expert_inner", "data_inner"}) {
        SCOPED_TRACE(fmt::format("replicate {} shard {} expert {} tensor {} pipeline {}, {}, {}", d.replicate, d.shard,
                                 d.expert, d.tensor, d.pipeline, sharding, mapping));
        const int world = d.replicate * d.shard * d.tensor * d.pipeline;
        visit(Layout(config_of(d, sharding, mapping), world), value_of<ShardingKind>(sharding));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Shards, CanonicalPartsOfTheRanksOfASumCoverABucketOnceAndLieInWhatTheyOwn) {
  for_each_layout([](const Layout& layout, ShardingKind sharding) {
    for (const Replication replication : kReplications) {
      for (const auto& ranks : layout.groups(shard_rule(sharding, replication).sum)) {
        const auto size = static_cast<int64_t>(ranks.size());
        const FlatRange bucket{128, 128 + 64 * size};
        std::vector<int> seen(ranks.size());
        for (const int rank : ranks) {
          const Shards shards = shards_of(layout, rank, sharding, replication);
          ASSERT_EQ(shards.parts, size);
          const FlatRange part = shards.part(bucket);
          ASSERT_EQ(intersect(part, shards.owned(bucket)), part);
          ASSERT_EQ(shards.canonical(bucket).size(), shards.is_canonical ? 64 : 0);
          ++seen[static_cast<size_t>((part.begin - bucket.begin) / 64)];
        }
        for (const int times : seen) ASSERT_EQ(times, 1) << replication.name();
      }
    }
  });
}

TEST(Shards, TheWrittenPartsAreTheSameWhoeverWritesThemAndOneRankWritesEach) {
  for_each_layout([](const Layout& layout, ShardingKind sharding) {
    for (const Replication replication : kReplications) {
      const ShardRule rule = shard_rule(sharding, replication);
      for (const auto& ranks : layout.groups(rule.sum)) {
        const FlatRange bucket{128, 128 + 64 * std::ssize(ranks)};
        for (const Writers writers : {Writers::kScattered, Writers::kFirst}) {
          std::map<int64_t, int> seen;  // by the beginning of a part
          for (const int rank : ranks) {
            const Shards shards = shards_of(layout, rank, sharding, replication);
            const auto written = shards.written(bucket, writers);
            ASSERT_EQ(std::ssize(written), shards.num_written(writers));
            const bool first = !rule.copies || layout.index_in_group(*rule.copies, rank) == 0;
            ASSERT_TRUE(first || writers == Writers::kScattered || written.empty());
            for (const FlatRange part : written) {
              ASSERT_EQ(part.size(), 64);
              ASSERT_EQ(intersect(part, shards.owned(bucket)), part);
              ++seen[part.begin];
            }
          }
          const bool canonical = shards_of(layout, ranks.front(), sharding, replication).is_canonical;
          ASSERT_EQ(std::ssize(seen), canonical ? std::ssize(ranks) : 0) << replication.name();
          for (const auto& [begin, times] : seen) ASSERT_EQ(times, 1) << replication.name();
        }
      }
    }
  });
}

TEST(Shards, OneRankOfAReplicaGroupIsCanonical) {
  for_each_layout([](const Layout& layout, ShardingKind sharding) {
    for (const Replication replication : kReplications) {
      for (const auto& ranks : layout.groups(replication.replicas().value_or(GroupKind::kTensor))) {
        int canonical = 0;
        for (const int rank : ranks) canonical += shards_of(layout, rank, sharding, replication).is_canonical;
        ASSERT_EQ(canonical, replication.replicas() ? 1 : std::ssize(ranks)) << replication.name();
      }
    }
  });
}

TEST(Shards, TheRanksOfAGatherMakeABucketWholeAndCopiesOwnTheSame) {
  for_each_layout([](const Layout& layout, ShardingKind sharding) {
    for (const Replication replication : kReplications) {
      const ShardRule rule = shard_rule(sharding, replication);
      for (int rank = 0; rank < layout.world_size(); ++rank) {
        const Shards own = shards_of(layout, rank, sharding, replication);
        if (rule.gather) {
          int64_t next = 0;  // in the order of the group, as an all-gather joins them
          for (const int other : layout.group_of(*rule.gather, rank))
            ASSERT_EQ(shards_of(layout, other, sharding, replication).owned_shard, next++) << replication.name();
          ASSERT_EQ(next, own.shards);
        }
        if (!rule.copies) continue;
        for (const int other : layout.group_of(*rule.copies, rank))
          ASSERT_EQ(shards_of(layout, other, sharding, replication).owned_shard, own.owned_shard) << replication.name();
      }
    }
  });
}

}  // namespace
}  // namespace athanor::shards_test
