#include "kernels/cuda/update.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"
#include "kernels/master.h"

namespace athanor::kernels::update_test {
namespace {

using namespace test;

class UpdateOnCuda : public OnEachPlace {
 protected:
  // Masters in both forms, in the memory of the place and on the host.
  struct Case {
    int64_t n;
    bool split;
    std::vector<float> master;
    std::vector<Bf16> weight;
    std::vector<uint16_t> low;

    Masters masters() {
      return split ? Masters{nullptr, weight.data(), low.data()} : Masters{master.data(), nullptr, nullptr};
    }
  };
  static std::vector<Case> cases() {
    std::vector<Case> all;
    for (const int64_t n : {0, 1, 37, 256, 4 * 8 * 256 + 4, 20003}) {
      for (const bool split : {false, true}) {
        Case c{n, split, numbers<float>(n, 1), std::vector<Bf16>(static_cast<size_t>(n)),
               std::vector<uint16_t>(static_cast<size_t>(n))};
        for (size_t i = 0; i < c.master.size(); i += 5) c.master[i] = 0;
        for (size_t i = 0; i < c.master.size(); ++i) split_master(c.master[i], c.weight[i], c.low[i]);
        all.push_back(std::move(c));
      }
    }
    return all;
  }

  // Calls there(masters, changed) with memory of the place, and here(masters) on the host, which returns the weights
  // that changed; then the masters must have the same bits, and the counts be the same.
  template <class There, class Here>
  void expect_the_masters_of_the_cpu(Case& c, There there, Here here) {
    const auto on_master = put(c.master);
    const auto on_weight = put(c.weight);
    const auto on_low = put(c.low);
    const auto changed = put(std::vector<int64_t>{7});
    there(c.split ? Masters{nullptr, on_weight.data(), on_low.data()} : Masters{on_master.data(), nullptr, nullptr},
          changed.data());
    const int64_t count = here(c.masters());
    EXPECT_EQ(changed.values()[0], 7 + count) << c.n;
    expect_same_bits(on_master.values(), c.master, "master");
    expect_same_bits(on_weight.values(), c.weight, "weight");
    EXPECT_EQ(on_low.values(), c.low);
  }
};
ATHANOR_ON_CUDA_PLACES(UpdateOnCuda);

TEST_P(UpdateOnCuda, SgdHasTheBitsOfTheCpus) {
  for (Case& c : cases()) {
    for (const bool nesterov : {false, true}) {
      const SgdRule rule{1e-2f, 0.1f, 0.9f, nesterov};
      auto m = numbers<float>(c.n, 2), grad = numbers<float>(c.n, 3);
      const auto on_m = put(m), on_grad = put(grad);
      expect_the_masters_of_the_cpu(
          c,
          [&](const Masters& masters, int64_t* changed) {
            cuda::update(stream(), rule, masters, {on_m.data()}, on_grad.data(), 0.5f, c.n, changed, nullptr, nullptr);
          },
          [&](const Masters& masters) { return update(rule, masters, {m.data()}, grad.data(), 0.5f, c.n).changed; });
      expect_same_bits(on_m.values(), m, "momentum");
      expect_same_bits(on_grad.values(), grad, "gradient");
    }
  }
}

TEST_P(UpdateOnCuda, SophiaHasTheBitsOfTheCpusAndCountsWhatItClips) {
  for (Case& c : cases()) {
    const SophiaRule rule{1e-2f, 0.1f, 0.9f, 0.04f};
    auto m = numbers<float>(c.n, 2), hessian = numbers<float>(c.n, 4, 100), grad = numbers<float>(c.n, 3);
    for (float& h : hessian) h = h < 0 ? 0 : h;
    const auto on_m = put(m), on_hessian = put(hessian), on_grad = put(grad);
    const auto clipped = put(std::vector<int64_t>{5});
    int64_t clipped_here = 0;
    expect_the_masters_of_the_cpu(
        c,
        [&](const Masters& masters, int64_t* changed) {
          cuda::update(stream(), rule, masters, {on_m.data(), on_hessian.data()}, on_grad.data(), 0.5f, c.n, changed,
                       clipped.data(), nullptr);
        },
        [&](const Masters& masters) {
          const auto counts = update(rule, masters, {m.data(), hessian.data()}, grad.data(), 0.5f, c.n);
          clipped_here = counts.clipped;
          return counts.changed;
        });
    EXPECT_EQ(clipped.values()[0], 5 + clipped_here);
    EXPECT_TRUE(c.n < 100 || (clipped_here > 0 && clipped_here < c.n));
    expect_same_bits(on_m.values(), m, "mean gradient");
    expect_same_bits(on_grad.values(), grad, "gradient");
  }
}

TEST_P(UpdateOnCuda, SubtractHasTheBitsOfTheCpus) {
  for (Case& c : cases()) {
    auto direction = numbers<float>(c.n, 6);
    const auto on_direction = put(direction);
    expect_the_masters_of_the_cpu(
        c,
        [&](const Masters& masters, int64_t* changed) {
          cuda::update(stream(), SubtractRule{0.99f, 0.0123f}, masters, {}, on_direction.data(), 1, c.n, changed,
                       nullptr, nullptr);
        },
        [&](const Masters& masters) {
          return update(SubtractRule{0.99f, 0.0123f}, masters, {}, direction.data(), 1, c.n).changed;
        });
    expect_same_bits(on_direction.values(), direction, "direction");
  }
}

TEST_P(UpdateOnCuda, MomentumAndSquaresHaveTheBitsOfTheCpus) {
  for (const int64_t n : {1, 37, 20003}) {
    for (const bool nesterov : {false, true}) {
      const MomentumStep step{0.95f, 0.5f, nesterov};
      auto m = numbers<float>(n, 2), grad = numbers<float>(n, 3);
      const auto on_m = put(m), on_grad = put(grad);
      cuda::momentum_direction(stream(), step, on_m.data(), on_grad.data(), n, nullptr);
      momentum_direction(step, m.data(), grad.data(), n);
      expect_same_bits(on_m.values(), m, "momentum");
      expect_same_bits(on_grad.values(), grad, "direction");
    }
    auto hessian = numbers<float>(n, 5);
    const auto grad = numbers<float>(n, 6);
    const auto on_hessian = put(hessian), on_grad = put(grad);
    cuda::add_squares(stream(), 0.99f, 1000.0f, on_grad.data(), on_hessian.data(), n);
    add_squares(0.99f, 1000.0f, grad.data(), hessian.data(), n);
    expect_same_bits(on_hessian.values(), hessian, "Hessian");
  }
}

TEST_P(UpdateOnCuda, AScaleThatIsNoNumberChangesNothing) {
  for (Case& c : cases()) {
    const auto m = numbers<float>(c.n, 2), v = numbers<float>(c.n, 3), grad = numbers<float>(c.n, 4);
    const auto on_m = put(m), on_v = put(v), on_grad = put(grad);
    const auto scale = put(std::vector<float>{NAN});
    const auto clipped = put(std::vector<int64_t>{0});
    expect_the_masters_of_the_cpu(
        c,
        [&](const Masters& masters, int64_t* changed) {
          const auto update_by = [&](const auto& rule, const auto& states) {
            cuda::update(stream(), rule, masters, states, on_grad.data(), 1, c.n, changed, clipped.data(),
                         scale.data());
          };
          update_by(SgdRule{0.1f, 0.1f, 0.9f, false}, RuleStates<SgdRule>{on_m.data()});
          update_by(SophiaRule{0.1f, 0.1f, 0.9f, 0.1f}, RuleStates<SophiaRule>{on_m.data(), on_v.data()});
          update_by(SubtractRule{0.9f, 0.1f}, RuleStates<SubtractRule>{});
          cuda::momentum_direction(stream(), {0.9f, 1, false}, on_m.data(), on_grad.data(), c.n, scale.data());
        },
        [](const Masters&) { return 0; });
    expect_same_bits(on_m.values(), m, "momentum");
    expect_same_bits(on_grad.values(), grad, "gradient");
    EXPECT_EQ(clipped.values()[0], 0);
  }
}

}  // namespace
}  // namespace athanor::kernels::update_test
