// Gradients and weights over collectives that write their results when they are waited for (comm/testing/late_world.h):
// a wait that is left out leaves what was there before. Values are small integers, so that sums in any order are equal.
#include <gtest/gtest.h>

#include "comm/testing/late_world.h"
#include "comm/thread_ranks.h"
#include "parallel/gradient_reducer.h"
#include "parallel/testing/small_layouts.h"
#include "parallel/weight_gatherer.h"

namespace athanor::late_collectives_test {
namespace {

constexpr int64_t kElements = 100;

// A parameter of each kind that these layouts have, twice, so that several buckets of a kind are on their way at once.
ParameterStore small_store(const ShardPlan& plan) {
  std::vector<BucketEntry> entries;
  for (int64_t layer = 0; layer < 2; ++layer)
    for (const Replication kind :
         {Replication::kDense, Replication::kExpert, Replication::kPartial, Replication::kReplicated})
      entries.push_back({fmt::format("layers.{}.{}", layer, kind.name()), kind, {kElements}, {0}, {kElements}, layer});
  return ParameterStore(std::move(entries), at::kFloat, ParameterStore::Use::kTraining, plan.sharding(1));
}

float value_of(int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 7 + 1)); }

// Fills this rank's gradients, as backward does.
void fill(const Tensor& values, int rank) {
  for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<float>()[i] = value_of(rank, i);
}

float sum_of(const std::vector<int>& ranks, int64_t i) {
  float sum = 0;
  for (const int rank : ranks) sum += value_of(rank, i);
  return sum;
}

// What element i of flat memory is on this rank after all sums, from the definition of the kind.
float expected_sum(const Layout& layout, int rank, Replication kind, int64_t i) {
  const auto over_data_ranks = [&](int of) { return sum_of(layout.group_of(kind.data_ranks(), of), i); };
  if (!kind.replicas()) return over_data_ranks(rank);
  const std::vector<int> replicas = layout.group_of(*kind.replicas(), rank);
  if (!kind.replicas_add()) return over_data_ranks(replicas.front());
  float sum = 0;
  for (const int each : replicas) sum += over_data_ranks(each);
  return sum;
}

class LateCollectives : public testing::TestWithParam<const char*> {
 protected:
  /// Calls test(mesh, plan) on each of eight ranks.
  template <class Test>
  void on_ranks(Test test) const {
    const Degrees degrees{2, 2, 2, GetParam(), 2};
    comm::run_ranks(degrees.world(), [&](comm::World& world) {
      at::set_num_threads(1);
      const auto late = comm::late_world(world);
      const Mesh mesh(Layout(small_run(degrees, 96, "float32"), degrees.world()), *late);
      test(mesh, ShardPlan(mesh, Choice<ShardingKind>(degrees.sharding)));
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Shardings, LateCollectives, testing::Values("none", "optimizer", "ep_aware", "hierarchical"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(LateCollectives, GradientsThatARankOwnsAreSummedOverAllStagesWhenTheReducerHasFinished) {
  on_ranks([](const Mesh& mesh, const ShardPlan& plan) {
    const ParameterStore store = small_store(plan);
    GradientReducer reducer(store, plan, at::kFloat);
    fill(store.grad(), mesh.rank());
    reducer.ready(1);
    reducer.finish();
    const auto* grad = store.grad().data_ptr<float>();
    for (const Bucket& bucket : store.buckets()) {
      const FlatRange owned = plan.owned(bucket);
      for (int64_t i = bucket.range.begin; i < bucket.range.end; ++i) {
        const bool is_owned = owned.begin <= i && i < owned.end;
        ASSERT_EQ(grad[i], is_owned ? expected_sum(mesh.layout(), mesh.rank(), bucket.replication, i) : 0)
            << bucket_place(store, bucket) << ", rank " << mesh.rank() << ", element " << i;
      }
    }
  });
}

TEST_P(LateCollectives, WeightsOfAllOwnersAreThereWhenTheGathererHasWaited) {
  on_ranks([](const Mesh&, const ShardPlan& plan) {
    const ParameterStore store = small_store(plan);
    WeightGatherer gatherer(store, plan);
    const Tensor& weights = store.compute();
    for (const OwnedRange& owned : store.owned())
      for (int64_t i = owned.flat.begin; i < owned.flat.end; ++i) weights.data_ptr<float>()[i] = value_of(0, i);
    for (const Bucket& bucket : store.buckets()) gatherer.start(bucket);
    for (int64_t layer = 0; layer < 2; ++layer) {
      gatherer.wait(layer);
      for (const Bucket& bucket : store.buckets())
        for (int64_t i = bucket.range.begin; i < bucket.range.end && bucket.first_forward_index <= layer; ++i)
          ASSERT_EQ(weights.data_ptr<float>()[i], value_of(0, i)) << bucket_place(store, bucket) << ", element " << i;
    }
    EXPECT_EQ(gatherer.num_on_the_way(), 0);
  });
}

}  // namespace
}  // namespace athanor::late_collectives_test
