// Whole steps with optimizers that the configuration does not have: second backwards, checkpoints and missing state.

#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "optim/testing/small_optimizers.h"
#include "saves/testing/ranks.h"

namespace athanor::optimizers_test {
namespace {

const char* const kNames[] = {"lamb", "muon", "sophia"};

class OptimizersOfARun : public Ranks {
 protected:
  // The message with which every rank refuses.
  static std::string refusal_of(const RunConfig& config, const std::function<void(TrainState&)>& act) {
    try {
      on_ranks(config, act);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }
  static std::function<TrainStateOptions()> options(const std::string& name, const RunConfig& config) {
    return [=] {
      TrainStateOptions with;
      with.optimizers = small::make_setup(name, config.optimizer, [](int64_t sequence, int64_t t, int64_t label) {
        return small::drawn_label(sequence, t, label, kVocab);
      });
      return with;
    };
  }
};

// Keeps nothing and moves nothing: it looks at the gradients of the second backward and of the step.
class Looking : public Optimizer {
 public:
  Looking(OptimizedParameters parameters, OtherLabels labels)
      : Optimizer({.name = "looking", .state = {}, .needs = {.second_backward = true}}, std::move(parameters)),
        labels_(std::move(labels)) {}

  std::optional<OtherLabels> second_backward(int64_t, bool) const override { return labels_; }
  void learn_from_second(int64_t, int64_t) override { second_ = parameters().store().grad().clone(); }
  int64_t apply(const Update&, FlatRange range) override {
    const Tensor grad = parameters().store().grad().narrow(0, range.begin, range.size());
    if (grad.count_nonzero().item<int64_t>() > 0) seen = true;
    if (!at::equal(grad, second_.narrow(0, range.begin, range.size()))) equal = false;
    grad.zero_();
    return 0;
  }

  bool seen = false, equal = true;

 private:
  OtherLabels labels_;
  Tensor second_;
};

TrainStateOptions looking(const OtherLabels& labels) {
  OptimizerSetup setup;
  setup.plan = {{{.optimizer = "looking"}}, {{.name = "looking", .state = {}, .needs = {.second_backward = true}}}};
  setup.make = [labels](const OptimizerDeclaration&, OptimizedParameters parameters, const OptimizerServices&) {
    return std::make_unique<Looking>(std::move(parameters), labels);
  };
  TrainStateOptions options;
  options.optimizers = std::move(setup);
  return options;
}

TEST_F(OptimizersOfARun, ASecondBackwardOnTheSameLabelsHasTheGradientOfTheStep) {
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    RunConfig c = config(kLayouts[i], "second");
    c.moe.router_aux_loss_coef = c.moe.router_z_loss_coef = 0;
    const auto same = [](int64_t, int64_t, int64_t label) { return label; };
    on_ranks(
        c,
        [&](TrainState& state) {
          initialize(state);
          train(state, 1);
          const auto& optimizer = dynamic_cast<const Looking&>(*state.optimizer.set.optimizers()[0]);
          if (!optimizer.seen || !optimizer.equal) throw std::runtime_error(fmt::format("layout {}: other bits", i));
        },
        [&] { return looking(same); });
  }
}

TEST_F(OptimizersOfARun, OtherLabelsAreTheSameOnEveryLayout) {
  const auto labels_of = [&](const Degrees& degrees) {
    std::map<std::pair<int64_t, int64_t>, int64_t> labels;
    std::mutex mutex;
    const auto record = [&](int64_t sequence, int64_t t, int64_t label) {
      const std::lock_guard lock(mutex);
      const auto drawn = small::drawn_label(sequence, t, label, kVocab);
      const auto [found, is_new] = labels.try_emplace({sequence, t}, drawn);
      if (!is_new && found->second != drawn) throw std::runtime_error("another label on another rank");
      return drawn;
    };
    on_ranks(
        config(degrees, "labels"),
        [&](TrainState& state) {
          initialize(state);
          train(state, 1);
        },
        [&] { return looking(record); });
    return labels;
  };
  const auto expected = labels_of(kOne);
  EXPECT_EQ(std::ssize(expected), 12 * (kSeqLen - 1));
  for (const size_t i : {1, 3, 7, 8, 9}) EXPECT_EQ(labels_of(kLayouts[i]), expected) << i;
}

struct Counting : Observer {
  int64_t seen = 0;
  void observe(const Observation&) override { ++seen; }
};

TEST_F(OptimizersOfARun, NothingOfASecondBackwardIsCounted) {
  const RunConfig c = config(kLayouts[2], "counted");
  const auto step_with = [&](const std::function<TrainStateOptions()>& make) {
    std::mutex mutex;
    std::vector<double> numbers;
    on_ranks(
        c,
        [&](TrainState& state) {
          initialize(state);
          const auto counting = std::make_shared<Counting>();
          state.observers.add(counting);
          const StepReport report = train_step(state, batch(0));
          const std::lock_guard lock(mutex);
          if (state.model.mesh.rank() != 0) return;
          numbers = {report.parts.loss_sum,
                     static_cast<double>(report.parts.num_targets),
                     report.parts.aux_sum,
                     report.grad_norm,
                     static_cast<double>(report.parts.routers.chosen.sum().item<int64_t>()),
                     static_cast<double>(counting->seen)};
        },
        make);
    return numbers;
  };
  EXPECT_EQ(step_with(options("sophia", c)), step_with([] { return TrainStateOptions{}; }));
}

TEST_F(OptimizersOfARun, StateOfEveryExtentIsReadOnAnyOtherLayoutBitForBit) {
  for (const char* name : kNames) {
    const RunConfig first = config(kOne, fmt::format("{}_one", name));
    on_ranks(
        first,
        [](TrainState& state) {
          initialize(state);
          train(state, 2);
          save_checkpoint(state);
        },
        options(name, first));
    fs::path before = checkpoint_of(first, 2);
    const auto expected = tensors_of(before);
    for (const auto& [tensor, values] : expected)
      EXPECT_GT(values.abs().max().item<float>(), 0) << name << ": " << tensor << " was never written";
    for (size_t i = 0; i < kLayouts.size(); i += 2) {
      RunConfig next = config(kLayouts[i], fmt::format("{}{}", name, i));
      next.checkpoint.load = i % 4 ? "broadcast" : "all_reduce";
      on_ranks(
          next,
          [&](TrainState& state) {
            load_checkpoint(state, CheckpointReader::open(before));
            save_checkpoint(state);
          },
          options(name, next));
      before = checkpoint_of(next, 2);
      expect_equal(expected, tensors_of(before), fmt::format("{}, layout {}", name, i));
    }
  }
}

TEST_F(OptimizersOfARun, ACutRunContinuesWithTheSameBits) {
  for (const char* name : kNames) {
    const RunConfig whole = config(kLayouts[3], fmt::format("{}_whole", name)),
                    cut = config(kLayouts[3], fmt::format("{}_cut", name));
    const auto train_and_save = [](TrainState& state, int64_t steps) {
      if (state.position.step == 0) initialize(state);
      train(state, steps);
      save_checkpoint(state);
    };
    on_ranks(
        whole, [&](TrainState& state) { train_and_save(state, 4); }, options(name, whole));
    on_ranks(
        cut, [&](TrainState& state) { train_and_save(state, 2); }, options(name, cut));
    on_ranks(
        cut,
        [&](TrainState& state) {
          load_checkpoint(state, CheckpointReader::open(checkpoint_of(cut, 2)));
          train_and_save(state, 2);
        },
        options(name, cut));
    expect_equal(tensors_of(checkpoint_of(whole, 4)), tensors_of(checkpoint_of(cut, 4)), name);
  }
}

TEST_F(OptimizersOfARun, StateThatACheckpointLacksIsNamedAndMayBeginAtZero) {
  const RunConfig first = config(kOne, "adamw");
  on_ranks(first, [](TrainState& state) {
    initialize(state);
    train(state, 1);
    save_checkpoint(state);
  });
  const auto load_into_lamb = [&](bool fresh) {
    RunConfig next = config(kLayouts[1], "lamb");
    next.checkpoint.fresh_moments = fresh;
    on_ranks(
        next,
        [&](TrainState& state) {
          load_checkpoint(state, CheckpointReader::open(checkpoint_of(first, 1)));
          train(state, 1);
        },
        options("lamb", next));
  };
  EXPECT_NO_THROW(load_into_lamb(true));
  try {
    load_into_lamb(false);
    FAIL() << "it was loaded";
  } catch (const CheckpointError& error) {
    EXPECT_SAYS(error.what(), "trust_ratio/model.embed_tokens.weight");
    EXPECT_SAYS(error.what(), "checkpoint.fresh_moments = true");
  }
}

// Norms that AdamW updated go to SGD: their state alone begins at zero, on every layout, and not once more when the run
// continues from its newest checkpoint.
TEST_F(OptimizersOfARun, TheStateOfNamedGroupsBeginsAtZeroAndThatOfTheOthersIsRead) {
  const RunConfig first = config(kOne, "all_adamw");
  on_ranks(first, [](TrainState& state) {
    initialize(state);
    train(state, 2);
    save_checkpoint(state);
  });
  const auto before = tensors_of(checkpoint_of(first, 2));
  for (const size_t i : {size_t{0}, size_t{2}, size_t{5}}) {
    RunConfig next = config(kLayouts[i], fmt::format("norms_to_sgd{}", i));
    next.optimizer.groups = {{.match = {"norm"}, .name = "sgd"}};
    const auto load = [&](TrainState& state) {
      load_checkpoint(state, CheckpointReader::open(checkpoint_of(first, 2)));
      save_checkpoint(state);
    };
    EXPECT_SAYS(refusal_of(next, load), "checkpoint.fresh_groups = [\"norm\"]");
    next.checkpoint.fresh_groups = {"norm"};
    on_ranks(next, load);
    auto loaded = tensors_of(checkpoint_of(next, 2));
    for (const auto& [tensor, values] : loaded) {
      if (tensor.starts_with("momentum/"))
        EXPECT_EQ(values.abs().max().item<float>(), 0) << tensor;
      else
        EXPECT_TRUE(at::equal(values, before.at(tensor))) << tensor;
    }
    on_ranks(next, [&](TrainState& state) {
      load(state);
      std::map<std::string, int64_t> expected;
      for (const ParameterSpec& spec : make_inventory(state.config.model))
        if (spec.role == Role::kNorm) expected[spec.name] = 2;
      if (state.optimizer.fresh_since != expected) throw std::runtime_error("other ages of moments");
      train(state, 1);
      save_checkpoint(state);
    });
    const auto trained = tensors_of(checkpoint_of(next, 3));
    on_ranks(next, [&](TrainState& state) {
      load_newest_checkpoint(state, RunFolder{next.train.run_dir}.checkpoints());
      state.position.step = 4;  // for another name
      save_checkpoint(state);
    });
    expect_equal(trained, tensors_of(checkpoint_of(next, 4)), "newest");
  }
}

// The rate of a group is a share of optimizer.lr, also if the run begins with a part whose rate is another: the first
// size of a batch ramp, or a training phase.
TEST_F(OptimizersOfARun, TheRateOfAGroupIsAShareOfTheRunsRateWhateverTheFirstPartHas) {
  RunConfig c = config(kOne, "groups");
  c.optimizer.lr = 0.01;
  c.optimizer.groups = {{.match = {"norm"}, .name = "", .lr = 0.001, .weight_decay = -1}};
  RunConfig ramp = c, phases = c;
  ramp.train.batch_ramp = {{.sequences = 6, .until_tokens = 200}};
  ramp.train.batch_ramp_lr = "linear";
  phases.train.stages.resize(2);
  phases.train.stages[0].steps = phases.train.stages[1].steps = 2;
  phases.train.stages[0].lr = 0.005;
  for (const RunConfig& run : {c, ramp, phases}) {
    on_ranks(run, [](TrainState& state) {
      const double scale = group_of(state.optimizer.set.plan().groups, "model.norm.weight", Role::kNorm).lr_scale;
      if (std::abs(scale - 0.1) > 1e-15) throw std::runtime_error(fmt::format("the group has {} of the rate", scale));
    });
  }
}

}  // namespace
}  // namespace athanor::optimizers_test
