// Routing on the device that the host plays, compared with the CPU.

#include <gtest/gtest.h>

#include <limits>

#include "guarded/device.h"
#include "kernels/error_bound.h"
#include "moe/balance_loss.h"
#include "moe/router.h"
#include "ops/testing/op_testing.h"
#include "ops/transfer.h"

namespace athanor::moe::router_device_test {
namespace {

using ops::test::normal;
using ops::test::weight_of;

// Autograd starts a thread for each device that exists when it is first used.
const bool kInstalled = (guarded::install_for_tests(), true);
const at::Device kDevice = guarded::device_of_tests();

constexpr int64_t kSequences = 2, kTokens = 96, kHidden = 64, kFfn = 48, kExperts = 8, kTopK = 2;

Tensor there(const Tensor& x) { return x.to(kDevice); }

class RouterOnDevice : public ::testing::Test {
 protected:
  void TearDown() override {
    guarded::queues().set_order({});
    guarded::set_kernels(true);
  }
};

struct Routed {
  Routing routing;
  RouterCounts counts;
  Tensor dx, drouter;
};

Routed run(const RouterOptions& options, at::Device device) {
  const Tensor x = normal({kSequences * kTokens, kHidden}, 5).to(device).requires_grad_();
  const Weight router = {normal({kExperts, kHidden}, 1).to(device), at::zeros({kExperts, kHidden}).to(device)};
  RouterOptions o = options;
  if (o.bias_E.defined()) o.bias_E = o.bias_E.to(device);
  Routed r{route(x, router, o, kSequences), {}, {}, {}};
  r.counts = count_routings({r.routing});
  const auto like = [&](const Tensor& y, uint64_t seed) { return normal(y.sizes(), seed).to(device); };
  const Tensor aux = balance_loss_sum(AuxScope::kSequence, {r.routing}, kTokens, {}), z = z_loss_sum({r.routing});
  const Tensor one = at::ones({}).to(device);
  torch::autograd::backward({r.routing.weights_TK, aux, z}, {like(r.routing.weights_TK, 7), one, one});
  r.dx = x.grad();
  r.drouter = router.grad;
  return r;
}

void expect_near(const Tensor& actual, const Tensor& expected, const std::string& what) {
  const Tensor a = ops::fetch(actual.detach()).to(at::kDouble), e = expected.detach().to(at::kDouble);
  // Both have a few roundings of each of the formula's sums, over tokens, experts and hidden elements.
  const double bound = kernels::error_bound(e.norm().item<double>(), 0, 4 * (kSequences * kTokens + kHidden));
  EXPECT_LE((a - e).norm().item<double>(), bound) << what;
}

TEST_F(RouterOnDevice, ChoicesAndCountsAreThoseOfTheCpuAndTheRestIsWithinRounding) {
  std::vector<RouterOptions> all;
  for (const auto kind : {Balance::kNone, Balance::kCapacity, Balance::kSwipe, Balance::kForcedUniform}) {
    for (const auto score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      for (const double noise : {0.0, 0.5, 300.0, std::numeric_limits<double>::infinity()}) {
        RouterOptions o{.k = kTopK, .score = score, .norm_topk_prob = noise > 0, .scaling_factor = 1.5};
        o.balance = {kind, score == RouterScore::kSigmoid ? 2 : 1, 0.8,
                     noise > 0 ? CapacityOrder::kScore : CapacityOrder::kPosition};
        o.noise = {noise, 3, 1, {.step = 4, .first_sequence = 5}};
        if (score == RouterScore::kSigmoid) o.bias_E = normal({kExperts}, 8) * 0.1;
        all.push_back(o);
      }
    }
  }
  for (const RouterOptions& o : all) {
    const Routed expected = run(o, at::kCPU);
    for (const bool kernels : {true, false}) {
      SCOPED_TRACE(testing::Message() << "balance " << static_cast<int>(o.balance.kind) << ", noise " << o.noise.stddev
                                      << (kernels ? "" : ", without kernels"));
      guarded::set_kernels(kernels);
      const Routed actual = run(o, kDevice);
      EXPECT_TRUE(ops::fetch(actual.routing.expert_ids_TK).equal(expected.routing.expert_ids_TK));
      EXPECT_TRUE(ops::fetch(actual.routing.count_BE).equal(expected.routing.count_BE));
      for (Tensor RouterCounts::*each : RouterCounts::kCounts) {
        if ((expected.counts.*each).defined()) {
          EXPECT_TRUE(ops::fetch(actual.counts.*each).equal(expected.counts.*each));
        }
      }
      expect_near(actual.counts.entropy_sum, expected.counts.entropy_sum, "entropy");
      expect_near(actual.routing.weights_TK, expected.routing.weights_TK, "weights");
      expect_near(actual.routing.prob_sum_BE, expected.routing.prob_sum_BE, "prob_sum");
      expect_near(actual.routing.z_sum, expected.routing.z_sum, "z_sum");
      expect_near(actual.dx, expected.dx, "dx");
      expect_near(actual.drouter, expected.drouter, "the router's gradient");
    }
  }
}

TEST_F(RouterOnDevice, WithKernelsNothingIsCopiedOrWaitedForWhateverBalances) {
  const Tensor x = there(normal({kSequences * kTokens, kHidden}, 5));
  const Weight router = {there(normal({kExperts, kHidden}, 1)), there(at::zeros({kExperts, kHidden}))};
  for (const auto kind : {Balance::kNone, Balance::kCapacity, Balance::kSwipe, Balance::kForcedUniform}) {
    RouterOptions o{.k = kTopK};
    o.balance.kind = kind;
    o.noise.stddev = 0.1;
    const auto before = guarded::copy_counts();
    const int64_t waits = guarded::queues().counts().waits;
    route(x, router, o, kSequences);
    EXPECT_EQ(guarded::copy_counts().to_device, before.to_device);
    EXPECT_EQ(guarded::copy_counts().to_host, before.to_host);
    EXPECT_EQ(guarded::queues().counts().waits, waits);
  }
}

TEST_F(RouterOnDevice, SavedChoicesGiveTheSameWeightsAndCountNothing) {
  const Tensor x = there(normal({kSequences * kTokens, kHidden}, 5));
  const Weight router = {there(normal({kExperts, kHidden}, 1)), there(at::zeros({kExperts, kHidden}))};
  RouterOptions o{.k = kTopK, .norm_topk_prob = true};
  o.balance = {Balance::kCapacity, 1, 0.8, CapacityOrder::kScore};
  o.noise.stddev = 0.5;
  const Routing first = route(x, router, o, kSequences);
  const Choices saved = first.choices();
  const Routing again = route(x, router, o, kSequences, &saved);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return ops::fetch(a.detach()).equal(ops::fetch(b.detach()));
  };
  EXPECT_TRUE(same(again.expert_ids_TK, first.expert_ids_TK));
  EXPECT_TRUE(same(again.weights_TK, first.weights_TK));
  EXPECT_TRUE(same(again.prob_sum_BE, first.prob_sum_BE));
  EXPECT_TRUE(same(again.z_sum, first.z_sum));
  EXPECT_FALSE(again.count_BE.defined() || again.counts.defined());
  o.training = false;
  const Routing evaluated = route(x, router, o, kSequences);
  EXPECT_FALSE(evaluated.counts.defined() || evaluated.prob_sum_BE.defined());
  EXPECT_TRUE(ops::fetch(evaluated.expert_ids_TK).ge(0).all().item<bool>());
}

int64_t launches_of_a_sparse_layer(const RouterOptions& options) {
  const auto weight = [&](std::vector<int64_t> shape, uint64_t seed) {
    const Weight w = weight_of(normal(shape, seed, at::kBFloat16));
    return Weight{there(w.value), there(w.grad)};
  };
  const Weight router = weight({kExperts, kHidden}, 1);
  const ops::ExpertWeights experts = {weight({kExperts, kFfn, kHidden}, 2), weight({kExperts, kFfn, kHidden}, 3),
                                      weight({kExperts, kHidden, kFfn}, 4)};
  const Tensor x = there(normal({kSequences * kTokens, kHidden}, 5, at::kBFloat16)).requires_grad_();
  const Tensor dy = there(normal({kSequences * kTokens, kHidden}, 6, at::kBFloat16)), one = there(at::ones({}));
  const int64_t before = guarded::queues().counts().launches;
  const Routing r = route(x, router, options, kSequences);
  const Tensor y = ops::experts(x, r.weights_TK, r.expert_ids_TK, experts, 0, kExperts);
  const Tensor aux = balance_loss_sum(AuxScope::kSequence, {r}, kTokens, {}), z = z_loss_sum({r});
  count_routings({r});
  torch::autograd::backward({y, aux, z}, {dy, one, one});
  return guarded::queues().counts().launches - before;
}

// A layer of bf16 forward and backward, with the losses and counts of its router.
TEST_F(RouterOnDevice, ASparseLayerLaunchesNoMoreThanThisManyKernels) {
  const std::pair<Balance, int64_t> most[] = {
      {Balance::kNone, 44}, {Balance::kCapacity, 46}, {Balance::kSwipe, 46}, {Balance::kForcedUniform, 46}};
  for (const auto& [kind, launches] : most) {
    RouterOptions options{.k = kTopK};
    options.balance.kind = kind;
    EXPECT_LE(launches_of_a_sparse_layer(options), launches) << "balance " << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace athanor::moe::router_device_test
