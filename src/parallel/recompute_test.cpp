#include <memory>

#include "parallel/recompute.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/linear.h"

namespace athanor::recompute_test {
namespace {

struct Linears {
  Weight first{at::randn({5, 4}), at::zeros({5, 4})}, second{at::randn({3, 5}), at::zeros({3, 5})};

  Tensor operator()(const Tensor& x) const { return ops::linear(at::tanh(ops::linear(x, first)), second); }
};

struct Gradients {
  Tensor x, first, second;

  bool operator==(const Gradients& other) const {
    return at::equal(x, other.x) && at::equal(first, other.first) && at::equal(second, other.second);
  }
};

// One weight is used twice, so that a region's gradient is added to another's.
Gradients gradients(const Linears& model, const Tensor& input, bool recompute) {
  const Tensor x = input.clone().requires_grad_();
  const auto region = [&](const Tensor& t) -> std::vector<Tensor> { return {model(t), t.sum()}; };
  const Tensor once = model(x * 2);
  const auto outputs = recompute ? checkpoint(x * 3, region) : region(x * 3);
  torch::autograd::backward({once.sum(), outputs[0].pow(2).sum(), outputs[1]}, {});
  Gradients result{x.grad(), model.first.grad.clone(), model.second.grad.clone()};
  model.first.grad.zero_();
  model.second.grad.zero_();
  return result;
}

TEST(Checkpoint, GradientsHaveTheBitsOfKeptActivations) {
  at::manual_seed(1);
  const Linears model;
  const Tensor x = at::randn({7, 4});
  EXPECT_EQ(gradients(model, x, true), gradients(model, x, false));
}

TEST(Checkpoint, TheRegionRunsOnceForwardAndOnceBackwardAndIsThenDropped) {
  const Linears model;
  const Tensor x = at::randn({2, 4}).requires_grad_();
  auto owned = std::make_shared<int>(0);
  std::weak_ptr<int> watch = owned;
  const auto outputs = checkpoint(x, [&model, calls = std::move(owned)](const Tensor& t) -> std::vector<Tensor> {
    EXPECT_EQ(at::GradMode::is_enabled(), ++*calls == 2);
    return {model(t)};
  });
  const Tensor root = outputs[0].sum();
  EXPECT_EQ(*watch.lock(), 1);
  torch::autograd::backward({root}, {});
  EXPECT_TRUE(watch.expired()) << "the graph still holds the region";
}

TEST(Checkpoint, AnOutputWithoutGradientIsPassedOver) {
  const Tensor x = at::randn({2, 4}).requires_grad_();
  const auto region = [](const Tensor& t) -> std::vector<Tensor> { return {t * 2, t * 3, t.detach().sum()}; };
  torch::autograd::backward({checkpoint(x, region)[1].sum()}, {});
  EXPECT_TRUE(at::equal(x.grad(), at::full({2, 4}, 3.0f)));
}

TEST(Checkpoint, WithoutGradientsItIsAPlainCall) {
  const at::NoGradGuard no_grad;
  int calls = 0;
  const auto outputs = checkpoint(at::ones({2}), [&](const Tensor& x) -> std::vector<Tensor> {
    ++calls;
    return {x + 1};
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(outputs[0].sum().item<float>(), 4);
}

TEST(ForgetUntilBackward, MemoryIsGoneInBetweenAndFilledBeforeItIsRead) {
  at::manual_seed(2);
  const Linears model;
  const Tensor x = at::randn({6, 4});
  const auto run = [&](bool forget) {
    const Tensor base = x.clone().requires_grad_();
    const Tensor normed = base * 2;
    const Tensor consumer = model(normed);
    if (forget) {
      forget_until_backward(normed, consumer, [x] { return x * 2; });
      EXPECT_EQ(normed.storage().nbytes(), 0u);
    }
    torch::autograd::backward({consumer.pow(2).sum()}, {});
    EXPECT_EQ(normed.storage().nbytes(), normed.nbytes());
    Gradients result{base.grad(), model.first.grad.clone(), model.second.grad.clone()};
    model.first.grad.zero_();
    model.second.grad.zero_();
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Recompute, KindsAreReadFromTheConfiguration) {
  const auto kinds = parse_recompute({"moe", "norm"});
  EXPECT_TRUE(kinds.norm && kinds.moe);
  EXPECT_FALSE(kinds.attention || kinds.layer);
}

}  // namespace
}  // namespace athanor::recompute_test
