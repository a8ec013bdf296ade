#include "layout/holding.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>

#include "base/random.h"

namespace athanor::holding_test {
namespace {

constexpr int kMostRanks = 48;

// Narrow, of 24 query heads, so that most degrees to 8 divide what they must.
ModelConfig model_of(const std::string& family) {
  ModelConfig m;
  m.family = family;
  m.hidden_size = 48;
  m.num_attention_heads = 24;
  m.num_hidden_layers = 8;
  m.intermediate_size = 24;
  m.vocab_size = 31;
  if (family == "olmoe" || family == "qwen3_moe") {
    m.num_experts = 4;
    m.num_experts_per_tok = 2;
  }
  return m;
}

class Draw {
 public:
  explicit Draw(const char* what) : random_(1, what) {}
  uint64_t below(uint64_t bound) { return random_.below(counter_++, bound); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + below(values.size()));
  }

 private:
  CounterRandom random_;
  uint64_t counter_ = 0;
};

struct Case {
  RunConfig config;
  int world = 1;

  std::string text() const {
    const auto& [m, p] = std::pair(config.model, config.parallelism);
    return fmt::format(
        "{} kv {} tied {} shared {} dense {}; tensor {} pipeline {}×{} expert {} of {} ranks, sequence {}", m.family,
        m.num_key_value_heads, m.tie_word_embeddings, m.num_shared_experts, m.mlp_only_layers.size(),
        p.tensor_parallel_degree, p.pipeline_parallel_degree, p.virtual_stages, p.expert_parallel_degree, world,
        p.sequence_parallel);
  }
};

Case draw_case(Draw& draw) {
  Case c;
  auto& m = c.config.model;
  m = model_of(draw.one_of<const char*>({"olmo", "olmoe", "llama", "qwen3", "qwen3_moe", "gpt2", "olmo2", "qwen2"}));
  m.num_key_value_heads = draw.one_of<int64_t>({0, 1, 2, 3, 4, 8, 12});
  m.tie_word_embeddings = draw.below(2) == 1;
  if (m.num_experts > 0) m.num_shared_experts = draw.one_of<int64_t>({0, 0, 1, 2});
  if (m.family == "qwen3_moe") {
    m.moe_intermediate_size = 24;
    m.intermediate_size = 72;
    if (draw.below(2) == 1) m.mlp_only_layers = {0, 3};
  }
  auto& p = c.config.parallelism;
  p.tensor_parallel_degree = draw.one_of<int64_t>({1, 2, 3, 4, 8});
  p.pipeline_parallel_degree = draw.one_of<int64_t>({1, 2, 3, 4});
  p.virtual_stages = p.pipeline_parallel_degree > 1 ? draw.one_of<int64_t>({1, 2, 3}) : 1;
  p.pipeline_schedule = p.virtual_stages > 1 ? "interleaved_1f1b" : "1f1b";
  p.sequence_parallel = draw.below(2) == 1;
  p.expert_parallel_degree = m.num_experts > 0 ? draw.one_of<int64_t>({1, 2, 4}) : 1;
  p.mapping = draw.one_of<const char*>({"expert_inner", "data_inner"});
  const int64_t data = p.expert_parallel_degree * draw.one_of<int64_t>({1, 2});
  p.data_parallel_shard_degree = data;
  c.world = static_cast<int>(data * p.tensor_parallel_degree * p.pipeline_parallel_degree);
  c.config.train.micro_batch_size = 1;
  c.config.train.global_batch_size = data * 12;
  return c;
}

struct Held : std::vector<HeldParameter> {
  explicit Held(std::vector<HeldParameter> parameters) : vector(std::move(parameters)) {
    for (size_t i = 0; i < size(); ++i) number[(*this)[i].spec.name] = i;
  }
  std::unordered_map<std::string, size_t> number;
};

std::vector<Held> hold(const Case& c, const Layout& layout) {
  std::vector<Held> held;
  for (int rank = 0; rank < c.world; ++rank) {
    held.emplace_back(held_parameters(c.config.model, c.config.parallelism, layout, rank));
  }
  return held;
}

const HeldParameter* find(const Held& held, const std::string& name) {
  const auto found = held.number.find(name);
  return found == held.number.end() ? nullptr : &held[found->second];
}

bool same_slice(const HeldParameter& a, const HeldParameter& b) { return a.offset == b.offset && a.extent == b.extent; }

// How often each element is held.
class Paint {
 public:
  explicit Paint(const ParameterSpec& spec) : shape_(spec.shape), seen_(static_cast<size_t>(spec.num_elements())) {}
  void add(const HeldParameter& p) { add(p, 0, 0); }
  bool everywhere(int times) const { return std::ranges::count(seen_, times) == std::ssize(seen_); }

 private:
  void add(const HeldParameter& p, size_t dim, int64_t at) {
    if (dim == shape_.size()) {
      ++seen_[static_cast<size_t>(at)];
      return;
    }
    for (int64_t i = 0; i < p.extent[dim]; ++i) add(p, dim + 1, at * shape_[dim] + p.offset[dim] + i);
  }
  std::vector<int64_t> shape_;
  std::vector<int> seen_;
};

template <class Visit>
int for_drawn_cases(int tries, const char* what, const Visit& visit) {
  Draw draw(what);
  int layouts = 0;
  for (int i = 0; i < tries; ++i) {
    const Case c = draw_case(draw);
    if (c.world > kMostRanks || !find_layout_faults(c.config, c.world).empty()) continue;
    SCOPED_TRACE(c.text());
    const Layout layout(c.config, c.world);
    visit(c, layout, hold(c, layout));
    if (testing::Test::HasFatalFailure()) return 0;
    ++layouts;
  }
  return layouts;
}

// The ranks are those of one data rank (without expert ranks) or of one group of expert ranks: together they hold
// everything, and no rank outside a parameter's replica group holds it.
void expect_covered(const Case& c, const Layout& layout, const std::vector<Held>& held, const std::vector<int>& ranks) {
  for (const auto& spec : make_inventory(c.config.model)) {
    Paint paint(spec);
    std::set<std::pair<std::vector<int64_t>, std::vector<int64_t>>> slices;
    int holders = 0;
    for (const int rank : ranks) {
      const auto* p = find(held[static_cast<size_t>(rank)], spec.name);
      if (!p) continue;
      ++holders;
      if (slices.emplace(p->offset, p->extent).second) paint.add(*p);
      if (spec.is_expert()) continue;
      // Within the data rank, its holders are the replica group.
      const auto kind = p->replication.replicas();
      std::vector<int> copies;
      for (const int other : layout.group_of(GroupKind::kModel, rank)) {
        const auto* there = find(held[static_cast<size_t>(other)], spec.name);
        if (there && same_slice(*there, *p)) copies.push_back(other);
      }
      ASSERT_EQ(copies, kind ? layout.group_of(*kind, rank) : std::vector<int>{rank})
          << spec.name << " " << p->replication.name();
    }
    ASSERT_TRUE(paint.everywhere(1)) << spec.name;
    ASSERT_TRUE(!spec.is_expert() || static_cast<size_t>(holders) == slices.size()) << spec.name;
  }
}

TEST(Holding, SlicesCoverEachParameterAndItsCopiesAreItsReplicaGroup) {
  const int layouts = for_drawn_cases(220, "cover", [](const Case& c, const Layout& layout, const auto& held) {
    for (const auto& group : layout.groups(GroupKind::kExpert)) {
      if (layout.coordinate(group[0], Axis::kPipeline) + layout.coordinate(group[0], Axis::kTensor) > 0) continue;
      std::vector<int> ranks;
      for (const int rank : group)
        std::ranges::copy(layout.group_of(GroupKind::kModel, rank), std::back_inserter(ranks));
      ASSERT_NO_FATAL_FAILURE(expect_covered(c, layout, held, ranks));
    }
  });
  EXPECT_GT(layouts, 80);
}

TEST(Holding, DataRanksHoldTheSameAndThoseOfEqualExpertsTheSameExperts) {
  const int layouts = for_drawn_cases(60, "data", [](const Case& c, const Layout& layout, const auto& held) {
    for (int rank = 0; rank < c.world; ++rank) {
      const auto& here = held[static_cast<size_t>(rank)];
      const auto& first = held[static_cast<size_t>(layout.group_of(GroupKind::kData, rank)[0])];
      const auto& equal = held[static_cast<size_t>(layout.group_of(GroupKind::kExpertData, rank)[0])];
      ASSERT_EQ(here.size(), first.size());
      for (size_t i = 0; i < here.size(); ++i) {
        const auto& there = here[i].spec.is_expert() ? equal[i] : first[i];
        ASSERT_EQ(here[i].spec.name, there.spec.name);
        ASSERT_EQ(here[i].replication, there.replication);
        ASSERT_TRUE(same_slice(here[i], there)) << here[i].spec.name;
      }
    }
  });
  EXPECT_GT(layouts, 20);
}

TEST(Holding, ForwardIndicesAscendAndEntriesOfAKindHaveOneOrderOnAllWhoSumIt) {
  const int layouts = for_drawn_cases(120, "order", [](const Case& c, const Layout& layout, const auto& held) {
    const auto entries = [&](int rank, Replication replication) {
      std::vector<std::string> names;
      for (const auto& p : held[static_cast<size_t>(rank)]) {
        if (p.replication == replication)
          names.push_back(fmt::format("{} [{}]", p.spec.name, fmt::join(p.extent, ", ")));
      }
      return names;
    };
    for (int rank = 0; rank < c.world; ++rank) {
      const auto& here = held[static_cast<size_t>(rank)];
      ASSERT_TRUE(std::ranges::is_sorted(here, {}, &HeldParameter::forward_index));
      for (const Replication replication : kReplications) {
        if (!replication.replicas()) continue;
        const int first = layout.group_of(*replication.replicas(), rank)[0];
        ASSERT_EQ(entries(rank, replication), entries(first, replication)) << replication.name();
      }
    }
  });
  EXPECT_GT(layouts, 40);
}

TEST(Holding, OfOneTensorRankNothingIsReplicatedAndOfOnePipelineRankNothingTied) {
  for_drawn_cases(120, "alone", [](const Case& c, const Layout& layout, const auto& held) {
    for (const auto& p : held[0]) {
      const bool tied = p.replication == Replication::kTied;
      ASSERT_FALSE(p.replication.replicas() && !tied && layout.tensor() == 1) << p.replication.name();
      ASSERT_FALSE(tied && layout.pipeline() == 1);
      ASSERT_TRUE(c.world > 1 || p.extent == p.spec.shape) << p.spec.name;
    }
  });
}

TEST(Holding, ReplicationKindsAreThoseOfTheTable) {
  Case c;
  c.config.model = model_of("qwen3_moe");
  c.config.model.num_key_value_heads = 2;
  auto& p = c.config.parallelism;
  p.tensor_parallel_degree = 4;
  const auto kind = [&](const std::string& name) {
    for (const auto& held : held_parameters(c.config.model, p, Layout(c.config, 4), 1)) {
      if (held.spec.name == name) return std::string(held.replication.name());
    }
    return std::string("none");
  };
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(kind(layer + "input_layernorm.weight"), "replicated");
  EXPECT_EQ(kind(layer + "mlp.gate.weight"), "replicated");
  EXPECT_EQ(kind(layer + "self_attn.q_norm.weight"), "partial");
  EXPECT_EQ(kind(layer + "self_attn.k_proj.weight"), "key_value");
  EXPECT_EQ(kind(layer + "self_attn.q_proj.weight"), "dense");
  EXPECT_EQ(kind(layer + "mlp.experts.up_proj.weight"), "expert");
  p.sequence_parallel = true;
  EXPECT_EQ(kind(layer + "input_layernorm.weight"), "partial");
  EXPECT_EQ(kind(layer + "mlp.gate.weight"), "replicated");
  c.config.model = model_of("olmoe");  // a norm over the whole projection is cut with it
  c.config.model.num_key_value_heads = 2;
  EXPECT_EQ(kind(layer + "self_attn.q_norm.weight"), "dense");
  EXPECT_EQ(kind(layer + "self_attn.k_norm.weight"), "key_value");
}

TEST(Holding, ATiedTableIsReadFirstInTheFirstStageAndLastInTheLast) {
  Case c;
  c.config.model = model_of("llama");
  c.config.model.tie_word_embeddings = true;
  c.config.parallelism.pipeline_parallel_degree = 2;
  c.config.train.global_batch_size = 8, c.config.train.micro_batch_size = 1;
  const Layout layout(c.config, 2);
  const Held first(held_parameters(c.config.model, c.config.parallelism, layout, 0)),
      last(held_parameters(c.config.model, c.config.parallelism, layout, 1));
  const std::string table = "model.embed_tokens.weight";
  EXPECT_EQ(find(first, table)->forward_index, 0);
  EXPECT_EQ(find(last, table)->forward_index, 9);  // after 8 layers
  EXPECT_EQ(find(first, "model.layers.1.mlp.up_proj.weight")->forward_index, 2);
  EXPECT_EQ(find(first, "model.norm.weight"), nullptr);
  EXPECT_EQ(find(last, "model.norm.weight")->forward_index, 9);
}

TEST(Holding, VocabularyRowsAreSharedUnevenly) {
  Case c;
  c.config.model = model_of("llama");
  c.config.parallelism.tensor_parallel_degree = 4;
  const Layout layout(c.config, 4);
  std::vector<int64_t> first, rows;
  for (int rank = 0; rank < 4; ++rank) {
    const auto held = held_parameters(c.config.model, c.config.parallelism, layout, rank);
    first.push_back(held[0].offset[0]), rows.push_back(held[0].extent[0]);
  }
  EXPECT_EQ(first, (std::vector<int64_t>{0, 7, 15, 23}));  // 31 · rank / 4
  EXPECT_EQ(rows, (std::vector<int64_t>{7, 8, 8, 8}));
}

TEST(Holding, NeighboursHoldOneKeyHeadWhereThereAreFewerThanRanks) {
  Case c;
  c.config.model = model_of("llama");
  c.config.model.num_key_value_heads = 2;
  c.config.parallelism.tensor_parallel_degree = 8;
  const Layout layout(c.config, 8);
  for (int rank = 0; rank < 8; ++rank) {
    const Held held(held_parameters(c.config.model, c.config.parallelism, layout, rank));
    const auto* k = find(held, "model.layers.0.self_attn.k_proj.weight");
    EXPECT_EQ(k->offset[0], rank / 4 * 2);  // heads of 2
    EXPECT_EQ(k->extent[0], 2);
  }
  EXPECT_EQ(layout.group_of(GroupKind::kKeyValue, 5), (std::vector<int>{4, 5, 6, 7}));
}

}  // namespace
}  // namespace athanor::holding_test
