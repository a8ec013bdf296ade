#pragma once
// For tests: the ranks of a layout with what they hold, own and update, without a model. Gradients are given, functions
// of the element, so that they are equal on every layout.

#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/thread_ranks.h"
#include "layout/holding.h"
#include "optim/optimizer_set.h"
#include "parallel/testing/small_layouts.h"

namespace athanor::inline optim {

inline constexpr int kSteps = 3;
inline constexpr double kRate = 0.05, kUnit = 0x1p-24;

inline const Degrees kOne{1, 1, 1, "none"};
inline const std::vector<Degrees> kLayouts = {
    {1, 2, 1, "none"},           {1, 4, 2, "none"},
    {1, 4, 2, "optimizer"},      {1, 4, 2, "ep_aware"},
    {2, 2, 2, "hierarchical"},   {2, 2, 4, "hierarchical"},
    {1, 3, 1, "ep_aware"},       {1, 2, 2, "ep_aware", 2},
    {1, 1, 1, "none", 4, 1},     {1, 2, 1, "optimizer", 2, 2},
    {1, 2, 2, "ep_aware", 1, 3}, {2, 1, 2, "hierarchical", 4, 2},
};

inline RunConfig config_of(const Degrees& degrees, const std::string& dtype) {
  return small_run(degrees, /*vocab_size=*/62, dtype);  // tensor ranks have parts of different size
}

using Whole = std::map<std::string, std::vector<float>>;  // a tensor for each parameter of the model

inline Whole empty_model(const ModelConfig& model) {
  Whole whole;
  for (const ParameterSpec& spec : make_inventory(model))
    whole[spec.name].resize(static_cast<size_t>(spec.num_elements()), NAN);
  return whole;
}

// Calls visit(entry, flat position, position in the whole tensor) for the elements of `range`.
inline void for_each_element(const ParameterStore& store, FlatRange range,
                             const std::function<void(const BucketEntry&, int64_t flat, int64_t global)>& visit) {
  for (const BucketEntry& e : store.table()) {
    const FlatRange held = intersect(range, e.range());
    for_each_run(e, held.begin - e.flat_begin, held.size(), [&](int64_t global, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) visit(e, held.begin + at + i, global + i);
    });
  }
}

/// The numbers of one kind at a step, which are functions of the element. Elements are asked for entry by entry.
class Numbers {
 public:
  Numbers(const char* what, int step) : what_(what), step_(static_cast<uint64_t>(step)) {}
  float of(const BucketEntry& e, int64_t global) {
    if (entry_ != &e) random_.emplace(step_, what_ + e.name);
    entry_ = &e;
    return static_cast<float>(static_cast<double>(random_->u64(static_cast<uint64_t>(global)) >> 11) * 0x1p-52 - 1);
  }

 private:
  std::string what_;
  uint64_t step_;
  const BucketEntry* entry_ = nullptr;
  std::optional<CounterRandom> random_;
};

// One rank of a layout, without a model: what it holds, owns and updates.
class RankState {
 public:
  RankState(const RunConfig& config, comm::World& world, OptimizerSetup setup)
      : mesh_(Layout(config, world.size()), world), plan_(mesh_, config.parallelism.sharding),
        store(make_bucket_entries(held_parameters(config.model, config.parallelism, mesh_.layout(), mesh_.rank())),
              config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat, ParameterStore::Use::kTraining,
              plan_.sharding(1000)),
        optimizers(std::move(setup), config.model, store, plan_) {
    Numbers weights("weight", 0);
    for_each_element(store, {0, store.flat_size()}, [&](const BucketEntry& e, int64_t flat, int64_t global) {
      const float value = weights.of(e, global);
      store.write_master(flat, {&value, 1});
    });
  }

  void step(int step) {
    if (optimizers.second_backward(step)) {
      set_gradients("second", step);
      optimizers.learn_from_second(step, 1000);
    }
    set_gradients("gradient", step);
    const Update update{step, kRate, 0.5};
    optimizers.begin(update);
    for (const Bucket& bucket : store.buckets()) optimizers.apply(update, bucket.range);
  }

  // Adds what this rank owns; several ranks own the same.
  void add_to(Whole& whole, const Whole* expected,
              const std::function<double(const BucketEntry&, float)>& bound) const {
    for (const Bucket& bucket : store.buckets()) {
      for_each_element(store, plan_.owned(bucket), [&](const BucketEntry& e, int64_t flat, int64_t global) {
        float value = 0;
        store.read_master(flat, {&value, 1});
        const auto i = static_cast<size_t>(global);
        whole.at(e.name)[i] = value;
        if (expected && !(std::abs(value - expected->at(e.name)[i]) <= bound(e, value)))
          throw std::runtime_error(fmt::format("{} element {}: {} where one rank has {}, bound {}", e.name, global,
                                               value, expected->at(e.name)[i], bound(e, value)));
      });
    }
  }

  int64_t count_collectives() const {
    int64_t calls = 0;
    for (const auto& [kind, group] : mesh_.groups()) calls += group->num_calls();
    return calls;
  }

 private:
  void set_gradients(const char* what, int step) {
    store.grad().zero_();
    Numbers numbers(what, step);
    auto* grad = store.grad().data_ptr<float>();
    for (const Bucket& bucket : store.buckets()) {
      for_each_element(store, plan_.owned(bucket),
                       [&](const BucketEntry& e, int64_t flat, int64_t global) { grad[flat] = numbers.of(e, global); });
    }
  }

  Mesh mesh_;
  ShardPlan plan_;

 public:
  ParameterStore store;
  OptimizerSet optimizers;
};

/// Returns the masters after kSteps updates, as the ranks that own them have them.
/// @param expected  if not null, every rank's elements must be within `bound` of it.
inline Whole weights_after(const std::function<OptimizerSetup(const RunConfig&)>& setup, const Degrees& degrees,
                           const std::string& dtype, const Whole* expected = nullptr,
                           const std::function<double(const BucketEntry&, float)>& bound = {}) {
  const RunConfig config = config_of(degrees, dtype);
  Whole whole = empty_model(config.model);
  std::mutex mutex;
  comm::run_ranks(degrees.world(), [&](comm::World& world) {
    at::set_num_threads(1);
    RankState rank(config, world, setup(config));
    for (int step = 1; step <= kSteps; ++step) rank.step(step);
    const std::lock_guard lock(mutex);
    rank.add_to(whole, expected, bound);
  });
  return whole;
}

}  // namespace athanor::inline optim
