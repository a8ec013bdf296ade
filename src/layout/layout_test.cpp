#include "layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace athanor::layout_test {
namespace {

struct Degrees {
  int pipeline = 1, replicate = 1, shard = 1, expert = 1, tensor = 1;
  int data() const { return replicate * shard; }
  int world() const { return pipeline * data() * tensor; }
};

RunConfig config_of(const Degrees& d, const NameOrNames& mapping = "expert_inner", int64_t microbatches = 2) {
  RunConfig config;
  config.model.num_experts = 24 * d.expert;
  config.model.num_experts_per_tok = 2;
  // Chooses sizes that the degrees divide.
  config.model.num_hidden_layers = d.pipeline;
  config.model.num_attention_heads = config.model.intermediate_size = 2 * d.tensor;
  auto& p = config.parallelism;
  p.pipeline_parallel_degree = d.pipeline;
  p.data_parallel_replicate_degree = d.replicate;
  p.data_parallel_shard_degree = d.shard;
  p.expert_parallel_degree = d.expert;
  p.tensor_parallel_degree = d.tensor;
  p.pipeline_schedule = "gpipe";
  p.mapping = mapping;
  config.train.micro_batch_size = 2;
  config.train.global_batch_size = d.data() * config.train.micro_batch_size * microbatches;
  return config;
}

std::vector<int> divisors(int n) {
  std::vector<int> out;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) out.push_back(d);
  }
  return out;
}

template <class Visit>
void for_all_degrees(int max_world, const Visit& visit) {
  for (int world = 1; world <= max_world; ++world) {
    for (const int pipeline : divisors(world)) {
      for (const int tensor : divisors(world / pipeline)) {
        const int data = world / pipeline / tensor;
        for (const int replicate : divisors(data)) {
          for (const int expert : divisors(data)) visit({pipeline, replicate, data / replicate, expert, tensor});
        }
      }
    }
  }
}

std::string text_of(const Degrees& d) {
  return "pipeline " + std::to_string(d.pipeline) + " replicate " + std::to_string(d.replicate) + " shard " +
         std::to_string(d.shard) + " expert " + std::to_string(d.expert) + " tensor " + std::to_string(d.tensor);
}

size_t expected_size(const Degrees& d, GroupKind kind, int balance_ranks, int key_value_copies) {
  const int expert_shard = std::gcd(d.expert, d.shard), expert_replicate = d.expert / expert_shard;
  switch (kind) {
    case GroupKind::kWorld: return static_cast<size_t>(d.world());
    case GroupKind::kData: return static_cast<size_t>(d.data());
    case GroupKind::kExpert: return static_cast<size_t>(d.expert);
    case GroupKind::kExpertData: return static_cast<size_t>(d.data() / d.expert);
    case GroupKind::kShard: return static_cast<size_t>(d.shard);
    case GroupKind::kReplicate: return static_cast<size_t>(d.replicate);
    case GroupKind::kExpertShard: return static_cast<size_t>(d.shard / expert_shard);
    case GroupKind::kExpertReplicate: return static_cast<size_t>(d.replicate / expert_replicate);
    case GroupKind::kBalance: return static_cast<size_t>(balance_ranks);
    case GroupKind::kTensor: return static_cast<size_t>(d.tensor);
    case GroupKind::kPipeline: return static_cast<size_t>(d.pipeline);
    case GroupKind::kModel: return static_cast<size_t>(d.pipeline * d.tensor);
    case GroupKind::kKeyValue: return static_cast<size_t>(key_value_copies);
    case GroupKind::kTied: break;  // its groups differ in size
  }
  return 0;
}

void expect_partition(const Layout& layout, GroupKind kind, size_t size) {
  std::set<int> seen;
  for (const auto& group : layout.groups(kind)) {
    ASSERT_EQ(group.size(), size) << group_name(kind);
    for (const int rank : group) {
      ASSERT_TRUE(seen.insert(rank).second) << group_name(kind) << ": rank " << rank << " twice";
      ASSERT_EQ(layout.group_of(kind, rank), group) << group_name(kind);
      ASSERT_EQ(layout.group_size(kind, rank), std::ssize(group)) << group_name(kind);
      ASSERT_EQ(group[static_cast<size_t>(layout.index_in_group(kind, rank))], rank) << group_name(kind);
    }
    if (kind == GroupKind::kTensor || kind == GroupKind::kPipeline || kind == GroupKind::kWorld) {
      ASSERT_TRUE(std::ranges::is_sorted(group)) << group_name(kind);
    } else {
      ASSERT_TRUE(std::ranges::is_sorted(group, {}, [&](int rank) { return layout.data_rank(rank); }));
    }
  }
  ASSERT_EQ(seen.size(), static_cast<size_t>(layout.world_size())) << group_name(kind);
  ASSERT_EQ(*seen.begin(), 0);
}

// Groups of two kinds whose product is a third have at most one rank in common; each rank has its own coordinates.
void expect_product(const Layout& layout, GroupKind left, GroupKind right, GroupKind whole) {
  for (const auto& group : layout.groups(whole)) {
    for (const int rank : group) {
      const auto a = layout.group_of(left, rank), b = layout.group_of(right, rank);
      ASSERT_EQ(a.size() * b.size(), group.size()) << group_name(left) << " × " << group_name(right);
      ASSERT_EQ(std::ranges::count_if(a, [&](int r) { return std::ranges::count(b, r) > 0; }), 1);
      for (const int r : a) ASSERT_EQ(std::ranges::count(group, r), 1);
      for (const int r : b) ASSERT_EQ(std::ranges::count(group, r), 1);
    }
  }
}

void expect_every_sequence_once(const Layout& layout, int64_t micro_batch_size, int64_t global_batch_size) {
  std::vector<int> seen(static_cast<size_t>(global_batch_size));
  for (int d = 0; d < layout.data(); ++d) {
    for (int64_t m = 0; m < layout.microbatches(); ++m) {
      for (int64_t s = 0; s < micro_batch_size; ++s) ++seen[static_cast<size_t>(layout.first_sequence(d, m) + s)];
    }
  }
  ASSERT_EQ(std::ranges::count(seen, 1), global_batch_size);
}

void expect_data_ranks_numbered(const Layout& layout) {
  std::map<std::pair<int, int>, std::set<int>> numbers;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto key = std::pair(layout.coordinate(rank, Axis::kPipeline), layout.coordinate(rank, Axis::kTensor));
    ASSERT_TRUE(numbers[key].insert(layout.data_rank(rank)).second);
  }
  for (const auto& [key, of_key] : numbers) {
    ASSERT_EQ(static_cast<int>(of_key.size()), layout.data());
    ASSERT_EQ(*of_key.rbegin(), layout.data() - 1);
  }
}

bool consecutive(const Layout& layout, const std::vector<int>& group) {
  for (size_t i = 1; i < group.size(); ++i) {
    if (layout.data_rank(group[i]) != layout.data_rank(group[0]) + static_cast<int>(i)) return false;
  }
  return true;
}

NameOrNames drawn_mapping(const CounterRandom& random, uint64_t& counter) {
  const auto kind = random.below(counter++, 3);
  if (kind < 2) return kind == 0 ? "expert_inner" : "data_inner";
  std::vector<std::string> axes = {"pipeline", "replicate", "shard", "expert", "tensor"};
  if (random.below(counter++, 2) == 1) axes.emplace_back("context");
  for (size_t i = axes.size(); i > 1; --i) std::swap(axes[i - 1], axes[random.below(counter++, i)]);
  return axes;
}

TEST(Layout, GroupsOfAllLayoutsTo24RanksArePartitionsAndProductsOfAxes) {
  const CounterRandom random(1, "layout_test");
  uint64_t counter = 0;
  int layouts = 0;
  for_all_degrees(24, [&](const Degrees& d) {
    auto config = config_of(d, drawn_mapping(random, counter), 1 + static_cast<int64_t>(random.below(counter++, 3)));
    const auto ways = divisors(d.data());
    const int balance_ranks = ways[random.below(counter++, ways.size())];
    config.moe.balance = "swipe";
    config.moe.balance_group = balance_ranks * config.train.micro_batch_size;
    if (random.below(counter++, 2) == 1) config.parallelism.sharding = "hierarchical";
    const auto copies = divisors(d.tensor);
    const int key_value_copies = copies[random.below(counter++, copies.size())];
    config.model.num_key_value_heads = d.tensor / key_value_copies;
    const Layout layout(config, d.world());
    SCOPED_TRACE(text_of(d));
    ++layouts;
    for (const auto kind : kGroupKinds) {
      if (kind == GroupKind::kTied) continue;  // its groups differ in size
      ASSERT_NO_FATAL_FAILURE(expect_partition(layout, kind, expected_size(d, kind, balance_ranks, key_value_copies)));
    }
    ASSERT_NO_FATAL_FAILURE(expect_product(layout, GroupKind::kExpert, GroupKind::kExpertData, GroupKind::kData));
    ASSERT_NO_FATAL_FAILURE(expect_product(layout, GroupKind::kShard, GroupKind::kReplicate, GroupKind::kData));
    ASSERT_NO_FATAL_FAILURE(
        expect_product(layout, GroupKind::kExpertShard, GroupKind::kExpertReplicate, GroupKind::kExpertData));
    ASSERT_NO_FATAL_FAILURE(expect_product(layout, GroupKind::kTensor, GroupKind::kPipeline, GroupKind::kModel));
    ASSERT_NO_FATAL_FAILURE(expect_product(layout, GroupKind::kData, GroupKind::kModel, GroupKind::kWorld));
    ASSERT_NO_FATAL_FAILURE(expect_data_ranks_numbered(layout));
    ASSERT_NO_FATAL_FAILURE(
        expect_every_sequence_once(layout, config.train.micro_batch_size, config.train.global_batch_size));
  });
  EXPECT_GT(layouts, 1000);
}

TEST(Layout, WhatRunsConsecutivelyInTheOrderOfSequences) {
  for_all_degrees(24, [&](const Degrees& d) {
    SCOPED_TRACE(text_of(d));
    for (const char* sharding : {"ep_aware", "hierarchical"}) {
      auto config = config_of(d);
      config.parallelism.sharding = sharding;
      const Layout layout(config, d.world());
      const bool hierarchical = std::string(sharding) == "hierarchical";
      for (const auto& group : layout.groups(hierarchical ? GroupKind::kShard : GroupKind::kExpert)) {
        ASSERT_TRUE(consecutive(layout, group));
      }
    }
  });
}

// The position in the group decides which experts a rank owns.
TEST(Layout, AnExpertGroupIsInTheOrderOfItsAxis) {
  for_all_degrees(24, [&](const Degrees& d) {
    for (const char* sharding : {"ep_aware", "hierarchical"}) {
      auto config = config_of(d, "data_inner");
      config.parallelism.sharding = sharding;
      const Layout layout(config, d.world());
      for (const auto& group : layout.groups(GroupKind::kExpert)) {
        for (int i = 0; i < d.expert; ++i) {
          ASSERT_EQ(layout.coordinate(group[static_cast<size_t>(i)], Axis::kExpert), i) << text_of(d);
        }
      }
    }
  });
}

TEST(Layout, DataRanksDoNotDependOnTheMapping) {
  const Degrees d{.pipeline = 2, .replicate = 2, .shard = 6, .expert = 4, .tensor = 2};
  const auto sequences_by_place = [&](const NameOrNames& mapping) {
    const Layout layout(config_of(d, mapping), d.world());
    std::map<std::vector<int>, int> number;
    for (int rank = 0; rank < d.world(); ++rank) {
      std::vector<int> place;
      for (int axis = 0; axis < kNumAxes; ++axis) place.push_back(layout.coordinate(rank, static_cast<Axis>(axis)));
      number[place] = layout.data_rank(rank);
    }
    return number;
  };
  const auto inner = sequences_by_place("expert_inner");
  EXPECT_EQ(inner.size(), static_cast<size_t>(d.world()));  // no two ranks have the same coordinates
  EXPECT_EQ(inner, sequences_by_place("data_inner"));
  EXPECT_EQ(inner, sequences_by_place(std::vector<std::string>{"tensor", "expert", "shard", "pipeline", "replicate"}));
}

TEST(Layout, MappingsPutExpertsOrEqualExpertsNextToOneAnother) {
  const Degrees d{.shard = 6, .expert = 3};
  const Layout inner(config_of(d, "expert_inner"), 6);
  EXPECT_EQ(inner.groups(GroupKind::kExpert), (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(inner.groups(GroupKind::kExpertData), (std::vector<std::vector<int>>{{0, 3}, {1, 4}, {2, 5}}));
  const Layout outer(config_of(d, "data_inner"), 6);
  EXPECT_EQ(outer.groups(GroupKind::kExpert), (std::vector<std::vector<int>>{{0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(outer.groups(GroupKind::kExpertData), (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}}));
}

TEST(Layout, AListOfAxesIsOutermostFirst) {
  const Degrees d{.pipeline = 2, .shard = 3, .tensor = 2};
  const Layout layout(config_of(d, std::vector<std::string>{"tensor", "replicate", "shard", "expert", "pipeline"}), 12);
  EXPECT_EQ(layout.coordinate(7, Axis::kTensor), 1);
  EXPECT_EQ(layout.coordinate(7, Axis::kShard), 0);
  EXPECT_EQ(layout.coordinate(7, Axis::kPipeline), 1);
  EXPECT_EQ(layout.group_of(GroupKind::kPipeline, 7), (std::vector<int>{6, 7}));
  EXPECT_EQ(layout.group_of(GroupKind::kTensor, 7), (std::vector<int>{1, 7}));
  EXPECT_EQ(layout.group_of(GroupKind::kData, 7), (std::vector<int>{7, 9, 11}));
}

TEST(Layout, SequencesOfADataRankStandTogether) {
  const Layout layout(config_of({.shard = 3}, "expert_inner", 4), 3);
  EXPECT_EQ(layout.first_sequence(0, 0), 0);
  EXPECT_EQ(layout.first_sequence(0, 3), 6);
  EXPECT_EQ(layout.first_sequence(1, 0), 8);
  EXPECT_EQ(layout.first_sequence(2, 3), 22);
}

TEST(Layout, RanksOfABalanceGroupTakeTheirMicrobatchesInTurn) {
  for_all_degrees(12, [&](const Degrees& d) {
    for (const int ranks : divisors(d.data())) {
      auto config = config_of(d, "data_inner", 3);
      config.moe.balance = "capacity";
      config.moe.balance_group = ranks * config.train.micro_batch_size;
      const Layout layout(config, d.world());
      ASSERT_EQ(layout.balance_ranks(), ranks);
      for (const auto& group : layout.groups(GroupKind::kBalance)) {
        for (int64_t m = 0; m < layout.microbatches(); ++m) {
          const int64_t first = layout.first_sequence(layout.data_rank(group[0]), m);
          ASSERT_EQ(first % config.moe.balance_group, 0);
          for (size_t i = 0; i < group.size(); ++i) {
            ASSERT_EQ(layout.first_sequence(layout.data_rank(group[i]), m),
                      first + static_cast<int64_t>(i) * config.train.micro_batch_size);
          }
        }
      }
    }
  });
}

TEST(Layout, RanksWithTheSameKeyAndValueHeadsAreNeighboursAlongTensor) {
  auto config = config_of({.shard = 2, .tensor = 4});
  config.model.num_key_value_heads = 2;
  const Layout layout(config, 8);
  EXPECT_EQ(layout.groups(GroupKind::kKeyValue), (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  config.model.num_key_value_heads = 4;
  EXPECT_EQ(Layout(config, 8).groups(GroupKind::kKeyValue).size(), 8u);
  config.model = {};
  config.model.from = "a folder";  // its heads are not known yet
  EXPECT_EQ(Layout(config, 8).groups(GroupKind::kKeyValue).size(), 8u);
}

TEST(Layout, ATiedTableIsSharedByTheFirstAndTheLastRankOfAPipeline) {
  auto config = config_of({.pipeline = 3, .shard = 2});
  EXPECT_EQ(Layout(config, 6).groups(GroupKind::kTied).size(), 6u);
  config.model.tie_word_embeddings = true;
  EXPECT_EQ(Layout(config, 6).groups(GroupKind::kTied), (std::vector<std::vector<int>>{{0, 4}, {1, 5}, {2}, {3}}));
  EXPECT_EQ(Layout(config, 6).group_of(GroupKind::kTied, 5), (std::vector<int>{1, 5}));
  config.parallelism.mapping = std::vector<std::string>{"replicate", "shard", "expert", "tensor", "pipeline"};
  EXPECT_EQ(Layout(config, 6).groups(GroupKind::kTied), (std::vector<std::vector<int>>{{0, 2}, {1}, {3, 5}, {4}}));
  config = config_of({.shard = 2});
  config.model.tie_word_embeddings = true;  // both are in one stage
  EXPECT_EQ(Layout(config, 2).groups(GroupKind::kTied).size(), 2u);
}

TEST(Layout, AModelsRanksAreInTheOrderOfPipelineThenTensor) {
  const auto config = config_of({.pipeline = 2, .shard = 2, .tensor = 2},
                                std::vector<std::string>{"tensor", "replicate", "shard", "expert", "pipeline"});
  EXPECT_EQ(Layout(config, 8).group_of(GroupKind::kModel, 3), (std::vector<int>{2, 6, 3, 7}));
}

TEST(Layout, TheShardDegreeTakesWhatIsLeft) {
  auto config = config_of({.replicate = 2, .shard = 3, .tensor = 2});
  config.parallelism.data_parallel_shard_degree = -1;
  const Layout layout(config, 12);
  EXPECT_EQ(layout.shard(), 3);
  EXPECT_EQ(layout.data(), 6);
  EXPECT_EQ(layout.microbatches(), 2);
}

}  // namespace
}  // namespace athanor::layout_test
