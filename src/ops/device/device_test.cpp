// Compares the device forms on a CUDA device with the same ops on the CPU, and likewise the portable forms that replace
// missing kernels. ops_device_test shows that every device form is right on CPU tensors.

#include "ops/device.h"

#include <ATen/Context.h>

#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/swiglu.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::device_test {
namespace {

using namespace test;

constexpr double kEps = 1e-5;

class OnCuda : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "libtorch sees no CUDA device";
  }
};
INSTANTIATE_TEST_SUITE_P(, OnCuda, ::testing::ValuesIn(kComputeTypes),
                         [](const auto& dtype) { return name_of(dtype.param); });

Tensor there(const Tensor& x) { return x.to(at::kCUDA); }
Weight there(const Weight& w) { return {there(w.value), there(w.grad)}; }

// Two results of the same formula, each of which has its own rounding errors, as a share of the whole. Sixteen is the
// number of successive roundings in the longest op, the experts.
void expect_near(const Tensor& actual, const Tensor& expected, int64_t terms, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const Tensor a = actual.detach().cpu().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const double stored = expected.scalar_type() == at::kBFloat16 ? kernels::kRoundoffBf16 : kernels::kRoundoffFp32;
  const double off = (a - e).norm().item<double>(), size = e.norm().item<double>();
  EXPECT_LE(off, 2 * 16 * kernels::error_bound(size, stored, terms)) << what;  // false for NaN
}

TEST_P(OnCuda, NormsGiveWhatTheyGiveOnTheCpu) {
  const Tensor x = normal({70, 264}, 1, GetParam()), branch = normal({70, 264}, 2, GetParam());
  const Tensor dy = normal({70, 264}, 3, GetParam());
  const Weight weight = weight_of(normal({264}, 4, GetParam()), 0.5), on_cuda = there(weight);
  const auto f = [](const Weight& w) {
    return [w](const auto& in) {
      const auto [sum, normed] = add_rms_norm(in[0], in[1], w, kEps);
      return sum + rms_norm(normed, w, kEps) + layer_norm(sum, kEps);
    };
  };
  const Outcome expected = run(f(weight), {x, branch}, dy),
                actual = run(f(on_cuda), {there(x), there(branch)}, there(dy));
  expect_near(actual.y, expected.y, 264, "y");
  expect_near(actual.dx[0], expected.dx[0], 264, "dx");
  expect_near(actual.dx[1], expected.dx[1], 264, "dbranch");
  expect_near(on_cuda.grad, weight.grad, 264, "dw");
}

TEST_P(OnCuda, SwigluAndRopeHaveTheBitsOfTheCpu) {
  const Tensor gate = normal({33, 64}, 1, GetParam()), up = normal({33, 64}, 2, GetParam());
  const Tensor dy = normal({33, 64}, 3, GetParam());
  const auto activation = [](const auto& in) { return swiglu(in[0], in[1]); };
  const Outcome expected = run(activation, {gate, up}, dy),
                actual = run(activation, {there(gate), there(up)}, there(dy));
  expect_same_bits(actual.y.cpu(), expected.y, "swiglu");
  expect_same_bits(actual.dx[0].cpu(), expected.dx[0], "dgate");
  expect_same_bits(actual.dx[1].cpu(), expected.dx[1], "dup");

  const Rotation rotation = make_rotation(at::arange(12, at::kLong), inverse_frequency(32, 1e4));
  const Rotation turned = {there(rotation.cos), there(rotation.sin)};
  const Tensor heads = normal({12, 3, 32}, 4, GetParam()), dheads = normal({12, 3, 32}, 5, GetParam());
  const Outcome here = run([&](const auto& in) { return rope(in[0], rotation); }, {heads}, dheads);
  const Outcome away = run([&](const auto& in) { return rope(in[0], turned); }, {there(heads)}, there(dheads));
  expect_same_bits(away.y.cpu(), here.y, "rope");
  expect_same_bits(away.dx[0].cpu(), here.dx[0], "drope");
}

TEST_P(OnCuda, EmbeddingAddsRowsWithTheBitsOfTheCpu) {
  const Weight weight = weight_of(normal({23, 40}, 1, GetParam()), 0.25), on_cuda = there(weight);
  const Tensor ids = at::randint(23, {4, 50}, at::detail::createCPUGenerator(7), at::kLong);
  const Tensor dy = normal({4, 50, 40}, 2, GetParam());
  const Tensor y = embedding(ids, weight), on = embedding(there(ids), on_cuda);
  torch::autograd::backward({y}, {dy});
  torch::autograd::backward({on}, {there(dy)});
  expect_same_bits(on.detach().cpu(), y.detach(), "y");
  expect_same_bits(on_cuda.grad.cpu(), weight.grad, "grad");
}

TEST_P(OnCuda, LinearAndTheLossGiveWhatTheyGiveOnTheCpu) {
  const Tensor x = normal({40, 64}, 1, GetParam()), dy = normal({40, 48}, 2, GetParam());
  const Weight weight = weight_of(normal({48, 64}, 3, GetParam()), 0.5), on_cuda = there(weight);
  const Outcome expected = run([&](const auto& in) { return linear(in[0], weight); }, {x}, dy);
  const Outcome actual = run([&](const auto& in) { return linear(in[0], on_cuda); }, {there(x)}, there(dy));
  expect_near(actual.y, expected.y, 64, "y");
  expect_near(actual.dx[0], expected.dx[0], 48, "dx");
  expect_near(on_cuda.grad, weight.grad, 40, "dw");

  Tensor targets = at::randint(48, {40}, at::detail::createCPUGenerator(7), at::kLong);
  targets[3] = -100;
  const Tensor one = at::ones({}, at::kDouble);
  const Outcome loss =
      run([&](const auto& in) { return linear_cross_entropy(in[0], weight, targets, 0.125, 16); }, {x}, one);
  const Outcome loss_on =
      run([&](const auto& in) { return linear_cross_entropy(in[0], on_cuda, there(targets), 0.125, 16); }, {there(x)},
          there(one));
  expect_near(loss_on.y.to(GetParam()), loss.y.to(GetParam()), 64 + 48, "loss");
  expect_near(loss_on.dx[0], loss.dx[0], 64 + 48, "dx of the loss");
  expect_near(on_cuda.grad, weight.grad, 64 + 48, "dw of the loss");
  targets[5] = 48;
  EXPECT_THROW(token_losses(there(x), on_cuda.value, there(targets), 16), DataError);
}

TEST_P(OnCuda, AttentionOverDocumentsGivesWhatItGivesOnTheCpu) {
  const Tensor q = normal({2, 24, 4, 16}, 1, GetParam()), k = normal({2, 24, 2, 16}, 2, GetParam());
  const Tensor v = normal({2, 24, 2, 16}, 3, GetParam()), dy = normal({2, 24, 4, 16}, 4, GetParam());
  for (const DocumentLengths& documents : {DocumentLengths{}, DocumentLengths{{10, 14}, {24}}}) {
    const auto f = [&](const auto& in) { return attention(in[0], in[1], in[2], documents); };
    const Outcome expected = run(f, {q, k, v}, dy), actual = run(f, {there(q), there(k), there(v)}, there(dy));
    expect_near(actual.y, expected.y, 24 + 16, "y");
    for (size_t i = 0; i < 3; ++i) expect_near(actual.dx[i], expected.dx[i], 24 + 16, "gradient");
  }
}

TEST_P(OnCuda, ExpertsGiveWhatTheyGiveOnTheCpuAndNoneToThoseWithoutTokens) {
  for (const auto& [tokens, hidden, ffn] : {std::array<int64_t, 3>{0, 16, 8}, {50, 64, 32}, {13, 17, 11}}) {
    constexpr int64_t kExperts = 6, kChoices = 2;
    // No token chooses expert 3, and the first is chosen but is not local.
    const Tensor ids = at::stack({at::arange(tokens, at::kLong) % 3, at::full({tokens}, 4, at::kLong)}, 1);
    const Tensor x = normal({tokens, hidden}, 1, GetParam()), dy = normal({tokens, hidden}, 2, GetParam());
    const Tensor gates = normal({tokens, kChoices}, 3).abs();
    const ExpertWeights w = {weight_of(normal({kExperts - 1, ffn, hidden}, 4, GetParam())),
                             weight_of(normal({kExperts - 1, ffn, hidden}, 5, GetParam())),
                             weight_of(normal({kExperts - 1, hidden, ffn}, 6, GetParam()))};
    const ExpertWeights on = {there(w.gate_LFD), there(w.up_LFD), there(w.down_LDF)};
    for (const auto combine : {CombineWeights::kAfterDown, CombineWeights::kBeforeDown}) {
      const auto f = [&](const ExpertWeights& weights, const Tensor& chosen) {
        return [&, chosen](const auto& in) { return experts(in[0], in[1], chosen, weights, 1, kExperts - 1, combine); };
      };
      const Outcome expected = run(f(w, ids), {x, gates}, dy);
      const Outcome actual = run(f(on, there(ids)), {there(x), there(gates)}, there(dy));
      const int64_t terms = hidden + ffn + tokens + 1;
      expect_near(actual.y, expected.y, terms, "y");
      expect_near(actual.dx[0], expected.dx[0], terms, "dx");
      expect_near(actual.dx[1], expected.dx[1].to(GetParam()), terms, "dgates");
      for (const auto& [away, here] :
           {std::pair{on.gate_LFD, w.gate_LFD}, {on.up_LFD, w.up_LFD}, {on.down_LDF, w.down_LDF}}) {
        expect_near(away.grad, here.grad.to(GetParam()), terms, "weight");
        EXPECT_TRUE(away.grad[2].eq(0).all().item<bool>()) << "an expert without tokens got a gradient";
      }
    }
  }
}

TEST(WithoutKernels, PortableFormsAddTheirWeightsGradientsIntoBuckets) {
  const Tensor x = normal({20, 24}, 1), dy = normal({20, 24}, 2);
  const Weight weight = weight_of(normal({24}, 3), 0.5), same = weight_of(weight.value, 0.5);
  const Outcome expected = run([&](const auto& in) { return rms_norm(in[0], weight, kEps); }, {x}, dy);
  const Outcome actual =
      run([&](const auto& in) { return device::without_kernels::rms_norm(in[0], same, kEps); }, {x}, dy);
  expect_near(actual.y, expected.y, 24, "y");
  expect_near(actual.dx[0], expected.dx[0], 24, "dx");
  expect_near(same.grad, weight.grad, 24, "dw");

  const Weight table = weight_of(normal({9, 24}, 4), 0.5), its_twin = weight_of(table.value, 0.5);
  const Tensor ids = at::randint(9, {20}, at::detail::createCPUGenerator(7), at::kLong);
  torch::autograd::backward({embedding(ids, table)}, {dy});
  torch::autograd::backward({device::without_kernels::embedding(ids, its_twin)}, {dy});
  expect_near(its_twin.grad, table.grad, 20, "embedding");
}

TEST(WithoutKernels, ExpertsAndCrossEntropyAreThoseOfTheFormula) {
  const Tensor x = normal({20, 12}, 1), dy = normal({20, 12}, 2), gates = normal({20, 2}, 3).abs();
  const Tensor ids = at::stack({at::arange(20, at::kLong) % 3, at::full({20}, 4, at::kLong)}, 1);
  const auto weights = [] {
    return ExpertWeights{weight_of(normal({5, 8, 12}, 4)), weight_of(normal({5, 8, 12}, 5)),
                         weight_of(normal({5, 12, 8}, 6))};
  };
  const ExpertWeights w = weights(), same = weights();
  const Outcome expected = run([&](const auto& in) { return experts(in[0], in[1], ids, w, 0, 5); }, {x, gates}, dy);
  const Outcome actual = run(
      [&](const auto& in) { return device::without_kernels::experts(in[0], in[1], ids, same, 0, 5); }, {x, gates}, dy);
  expect_near(actual.y, expected.y, 20, "y");
  expect_near(actual.dx[0], expected.dx[0], 20, "dx");
  expect_near(actual.dx[1], expected.dx[1], 20, "dgates");
  expect_near(same.gate_LFD.grad, w.gate_LFD.grad, 20, "gate");
  expect_near(same.up_LFD.grad, w.up_LFD.grad, 20, "up");
  expect_near(same.down_LDF.grad, w.down_LDF.grad, 20, "down");

  const Tensor targets = at::tensor({2, -100, 0, 5}, at::kLong), eye = at::eye(6);
  Tensor logits = normal({4, 6}, 7);
  logits[2].fill_(1.0);  // all are the largest: greedy takes the first
  const TokenLosses here = token_losses(logits, eye, targets, 4);
  const Tensor gradient = logits.clone();
  const TokenLosses away = device::without_kernels::cross_entropy(gradient, targets, 0.5);
  expect_near(away.loss, here.loss, 12, "loss");
  EXPECT_TRUE(away.is_greedy.equal(here.is_greedy));
  EXPECT_TRUE(away.is_greedy[2].item<bool>());
  Tensor formula = at::softmax(logits, 1);
  for (const int64_t row : {0, 2, 3}) formula[row][targets[row].item<int64_t>()] -= 1;
  formula[1].zero_();
  expect_near(gradient, formula * 0.5, 12, "gradient");
}

}  // namespace
}  // namespace athanor::ops::device_test
