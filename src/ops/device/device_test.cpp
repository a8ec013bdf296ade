// Compares the device forms with the same ops on the CPU: on a CUDA device, and on the device that the host plays in
// tests (guarded/), with our kernels and with the portable forms that replace missing ones. ops_device_test shows that
// every device form is right on CPU tensors.

#include <tuple>

#include "ops/device.h"

#include <ATen/Context.h>

#include "guarded/device.h"
#include "ops/document_tables.h"
#include "ops/embedding.h"
#include "ops/gelu.h"
#include "ops/linear.h"
#include "ops/soft_cap.h"
#include "ops/swiglu.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::device_test {
namespace {

using namespace test;

constexpr double kEps = 1e-5;

// Autograd starts a thread for each device that exists when it is first used.
const bool kInstalled = (guarded::install_for_tests(), true);

// Where an op runs.
struct Where {
  std::string name;
  at::Device device;
  bool has_kernels;
  guarded::Order order = {};
};

std::vector<Where> places() {
  using Kind = guarded::Order::Kind;
  return {{"Cuda", at::Device(at::kCUDA, 0), true},
          {"GuardedEarliest", guarded::kDevice, true},
          {"GuardedLatest", guarded::kDevice, true, {Kind::kLatest}},
          {"GuardedDrawn", guarded::kDevice, true, {Kind::kDrawn, 1}},
          {"GuardedWithoutKernels", guarded::kDevice, false, {Kind::kDrawn, 2}}};
}

class OnDevice : public ::testing::TestWithParam<std::tuple<Where, at::ScalarType>> {
 protected:
  void SetUp() override {
    const bool on_cuda = guarded::device_of_tests().is_cuda();
    if (where().device.is_cuda() && !(on_cuda && at::globalContext().hasCUDA()))
      GTEST_SKIP() << "needs a CUDA device, and ATHANOR_TEST_DEVICE=cuda";
    if (where().device.is_privateuseone() && on_cuda) GTEST_SKIP() << "this process tests a CUDA device";
    guarded::set_kernels(where().has_kernels);
    guarded::queues().set_order(where().order);
  }
  void TearDown() override {
    guarded::queues().set_order({});
    guarded::set_kernels(true);
  }
  const Where& where() const { return std::get<0>(GetParam()); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
  Tensor there(const Tensor& x) const { return x.to(where().device); }
  Weight there(const Weight& w) const { return {there(w.value), there(w.grad)}; }
  ExpertWeights there(ExpertWeights w) const {
    for (Weight* each : {&w.gate_LFD, &w.up_LFD, &w.down_LDF, &w.gate_bias_LF, &w.up_bias_LF, &w.down_bias_LD})
      if (each->defined()) *each = there(*each);
    return w;
  }
  // Kernels without sums have the bits of the CPU's.
  void expect_same(const Tensor& actual, const Tensor& expected, int64_t terms, const std::string& what) const;
};
INSTANTIATE_TEST_SUITE_P(, OnDevice,
                         ::testing::Combine(::testing::ValuesIn(places()), ::testing::ValuesIn(kComputeTypes)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + name_of(std::get<1>(each.param));
                         });

// Two results of the same formula, each of which has its own rounding errors, as a share of the whole. Sixteen is the
// number of successive roundings in the longest op, the experts.
void expect_near(const Tensor& actual, const Tensor& expected, int64_t terms, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const Tensor a = actual.detach().cpu().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const double stored = expected.scalar_type() == at::kBFloat16 ? kernels::kRoundoffBf16 : kernels::kRoundoffFp32;
  const double off = (a - e).norm().item<double>(), size = e.norm().item<double>();
  EXPECT_LE(off, 2 * 16 * kernels::error_bound(size, stored, terms)) << what;  // false for NaN
}

void OnDevice::expect_same(const Tensor& actual, const Tensor& expected, int64_t terms, const std::string& what) const {
  if (where().has_kernels) return expect_same_bits(actual.detach().cpu(), expected.detach(), what);
  expect_near(actual, expected, terms, what);
}

TEST_P(OnDevice, NormsGiveWhatTheyGiveOnTheCpu) {
  const Tensor x = normal({70, 264}, 1, dtype()), branch = normal({70, 264}, 2, dtype());
  const Tensor dy = normal({70, 264}, 3, dtype());
  const Weight weight = weight_of(normal({264}, 4, dtype()), 0.5), there_too = there(weight);
  const auto f = [](const Weight& w) {
    return [w](const auto& in) {
      const auto [sum, normed] = add_rms_norm(in[0], in[1], w, {kEps, 1});
      return sum + rms_norm(normed, w, kEps) + layer_norm(sum, kEps);
    };
  };
  const Outcome expected = run(f(weight), {x, branch}, dy),
                actual = run(f(there_too), {there(x), there(branch)}, there(dy));
  expect_near(actual.y, expected.y, 264, "y");
  expect_near(actual.dx[0], expected.dx[0], 264, "dx");
  expect_near(actual.dx[1], expected.dx[1], 264, "dbranch");
  expect_near(there_too.grad, weight.grad, 264, "dw");
}

TEST_P(OnDevice, ActivationsSoftCapsAndRopeHaveTheBitsOfTheCpu) {
  const Tensor gate = normal({33, 64}, 1, dtype()), up = normal({33, 64}, 2, dtype());
  const Tensor dy = normal({33, 64}, 3, dtype());
  const auto activation = [](const auto& in) { return swiglu(in[0], in[1]); };
  const Outcome expected = run(activation, {gate, up}, dy),
                actual = run(activation, {there(gate), there(up)}, there(dy));
  expect_same(actual.y, expected.y, 1, "swiglu");
  expect_same(actual.dx[0], expected.dx[0], 1, "dgate");
  expect_same(actual.dx[1], expected.dx[1], 1, "dup");

  const auto gelu_gate = [](const auto& in) { return geglu(in[0], in[1]); };
  const Outcome one_gate = run(gelu_gate, {gate, up}, dy),
                gate_there = run(gelu_gate, {there(gate), there(up)}, there(dy));
  expect_same(gate_there.y, one_gate.y, 1, "geglu");
  for (size_t i = 0; i < 2; ++i) expect_same(gate_there.dx[i], one_gate.dx[i], 1, "geglu gradient");

  expect_same(soft_cap(there(gate), 0.7), soft_cap(gate, 0.7), 1, "soft cap");
  const Tensor slope = dy.clone(), slope_there = there(dy).clone();
  soft_cap_gradient_(slope, gate, 0.7);
  soft_cap_gradient_(slope_there, there(gate), 0.7);
  expect_same(slope_there, slope, 1, "gradient of a soft cap");

  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kExact}) {
    const auto f = [form](const auto& in) { return gelu(in[0], form); };
    const Outcome one = run(f, {gate}, dy), one_there = run(f, {there(gate)}, there(dy));
    expect_same(one_there.y, one.y, 1, "gelu");
    expect_same(one_there.dx[0], one.dx[0], 1, "gelu dx");
  }

  const Rotation rotation = make_rotation(at::arange(12, at::kLong), inverse_frequency(32, 1e4));
  const Rotation turned = {there(rotation.cos), there(rotation.sin)};
  const Tensor heads = normal({12, 3, 32}, 4, dtype()), dheads = normal({12, 3, 32}, 5, dtype());
  const Outcome here = run([&](const auto& in) { return rope(in[0], rotation); }, {heads}, dheads);
  const Outcome away = run([&](const auto& in) { return rope(in[0], turned); }, {there(heads)}, there(dheads));
  expect_same(away.y, here.y, 1, "rope");
  expect_same(away.dx[0], here.dx[0], 1, "drope");
}

TEST_P(OnDevice, EmbeddingAddsRowsWithTheBitsOfTheCpu) {
  const Weight weight = weight_of(normal({23, 40}, 1, dtype()), 0.25), there_too = there(weight);
  const Tensor ids = at::randint(23, {4, 50}, at::detail::createCPUGenerator(7), at::kLong);
  const Tensor dy = normal({4, 50, 40}, 2, dtype());
  const Tensor y = embedding(ids, weight), on = embedding(there(ids), there_too);
  torch::autograd::backward({y}, {dy});
  torch::autograd::backward({on}, {there(dy)});
  expect_same(on, y, 1, "y");
  expect_same(there_too.grad, weight.grad, 1, "grad");
}

TEST_P(OnDevice, LinearAndTheLossGiveWhatTheyGiveOnTheCpu) {
  const Tensor x = normal({40, 64}, 1, dtype()), dy = normal({40, 48}, 2, dtype());
  const Weight weight = weight_of(normal({48, 64}, 3, dtype()), 0.5), there_too = there(weight);
  const Outcome expected = run([&](const auto& in) { return linear(in[0], weight); }, {x}, dy);
  const Outcome actual = run([&](const auto& in) { return linear(in[0], there_too); }, {there(x)}, there(dy));
  expect_near(actual.y, expected.y, 64, "y");
  expect_near(actual.dx[0], expected.dx[0], 48, "dx");
  // A device rounds a product of weight gradients to the compute type before it is added to the fp32 bucket.
  expect_near(there_too.grad, weight.grad.to(dtype()), 40, "dw");

  Tensor targets = at::randint(48, {40}, at::detail::createCPUGenerator(7), at::kLong);
  targets[3] = -100;
  const Tensor one = at::ones({}, at::kDouble);
  const Outcome loss =
      run([&](const auto& in) { return linear_cross_entropy(in[0], weight, targets, 0.125, 16); }, {x}, one);
  const Outcome loss_on =
      run([&](const auto& in) { return linear_cross_entropy(in[0], there_too, there(targets), 0.125, 16); }, {there(x)},
          there(one));
  expect_near(loss_on.y.to(dtype()), loss.y.to(dtype()), 64 + 48, "loss");
  expect_near(loss_on.dx[0], loss.dx[0], 64 + 48, "dx of the loss");
  expect_near(there_too.grad, weight.grad.to(dtype()), 64 + 48, "dw of the loss");
  // With one chunk or several, a wrong target makes the loss NaN, and changes nothing else.
  Tensor without = targets.clone();
  targets[5] = 48;
  without[5] = -100;
  for (const int64_t chunk_tokens : {16, 64}) {
    const auto of = [&](const Tensor& ids, const Weight& w) {
      return run([&](const auto& in) { return linear_cross_entropy(in[0], w, there(ids), 0.125, chunk_tokens); },
                 {there(x)}, there(one));
    };
    const Weight one_weight = there(weight_of(weight.value)), other_weight = there(weight_of(weight.value));
    const Outcome wrong = of(targets, one_weight), right = of(without, other_weight);
    EXPECT_TRUE(std::isnan(wrong.y.cpu().item<double>()));
    EXPECT_FALSE(std::isnan(right.y.cpu().item<double>()));
    expect_same_bits(wrong.dx[0].cpu(), right.dx[0].cpu(), "dx with a wrong target");
    expect_same_bits(one_weight.grad.cpu(), other_weight.grad.cpu(), "dw with a wrong target");
  }
  EXPECT_THROW(token_losses(there(x), there_too.value, there(targets), 16), DataError);
}

// Heads of 16 are taken by libtorch's kernels; of 12, by one of them in fp32; of 6 or 7, by none.
TEST_P(OnDevice, AttentionOverDocumentsGivesWhatItGivesOnTheCpu) {
  for (const auto& [heads, kv_heads, head_dim] :
       {std::array<int64_t, 3>{4, 2, 16}, {3, 3, 16}, {6, 1, 8}, {4, 2, 12}, {4, 2, 6}, {2, 1, 7}}) {
    const Tensor q = normal({3, 24, heads, head_dim}, 1, dtype()), k = normal({3, 24, kv_heads, head_dim}, 2, dtype());
    const Tensor v = normal({3, 24, kv_heads, head_dim}, 3, dtype()), dy = normal(q.sizes(), 4, dtype());
    for (const auto& [documents, options] : {std::pair<DocumentLengths, AttentionOptions>{{}, {}},
                                             {{{10, 14}, {24}, {24}}, {}},
                                             {{{1, 0, 22, 1}, {3, 21}, {3, 21}}, {.scale = 0.4}},
                                             {{}, {.window = 6}},
                                             {{{10, 14}, {24}, {24}}, {.window = 11, .scale = 0.2}},
                                             {{{10, 14}, {24}, {24}}, {.window = 11, .scale = 0.4, .soft_cap = 0.7}}}) {
      const auto f = [&](const auto& in) { return attention(in[0], in[1], in[2], documents, options); };
      const Outcome expected = run(f, {q, k, v}, dy), actual = run(f, {there(q), there(k), there(v)}, there(dy));
      const auto what = fmt::format("heads {} {} of {}: ", heads, kv_heads, head_dim);
      expect_near(actual.y, expected.y, 24 + head_dim, what + "y");
      for (size_t i = 0; i < 3; ++i)
        expect_near(actual.dx[i], expected.dx[i], 24 + head_dim + heads / kv_heads, what + "gradient");
    }
  }
}

TEST_P(OnDevice, AttentionTakesTablesWithMoreRoomThanItNeeds) {
  const Tensor q = normal({2, 24, 4, 16}, 1, dtype()), k = normal({2, 24, 2, 16}, 2, dtype());
  const Tensor v = normal({2, 24, 2, 16}, 3, dtype()), dy = normal({2, 24, 4, 16}, 4, dtype());
  DocumentLengths documents{{23, 1}, {5, 19}};
  const auto f = [&](const auto& in) { return attention(in[0], in[1], in[2], documents); };
  const Outcome expected = run(f, {there(q), there(k), there(v)}, there(dy));
  documents.tables = unpack_tables(there(pack_tables(documents, 24, 90)), 2, 24);
  const Outcome actual = run(f, {there(q), there(k), there(v)}, there(dy));
  expect_same_bits(actual.y.cpu(), expected.y.cpu(), "y");
  // CUDA cuts the sums of dq into fewer parts if there are more documents.
  for (size_t i = 0; i < 3; ++i) expect_near(actual.dx[i], expected.dx[i].cpu(), 24 + 16, "gradient");
}

TEST_P(OnDevice, AttentionHasTheSameBitsInEachRunAndLeavesTheSettingsOfTheProcess) {
  const Tensor q = normal({2, 24, 4, 16}, 1, dtype()), k = normal({2, 24, 2, 16}, 2, dtype());
  const Tensor v = normal({2, 24, 2, 16}, 3, dtype()), dy = normal({2, 24, 4, 16}, 4, dtype());
  for (const DocumentLengths& documents : {DocumentLengths{}, DocumentLengths{{10, 14}, {24}}}) {
    const auto f = [&](const auto& in) { return attention(in[0], in[1], in[2], documents); };
    const Outcome first = run(f, {there(q), there(k), there(v)}, there(dy));
    for (int again = 0; again < 2; ++again) {
      const Outcome next = run(f, {there(q), there(k), there(v)}, there(dy));
      for (size_t i = 0; i < 3; ++i) expect_same_bits(next.dx[i].cpu(), first.dx[i].cpu(), "gradient");
    }
  }
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicFillUninitializedMemory());
}

TEST_P(OnDevice, AttentionOverCachesGivesWhatItGivesOnTheCpu) {
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{4, 2}, {6, 1}, {3, 3}}) {
    const Tensor q = normal({3, heads, 16}, 1, dtype()), k = normal({4, 12, kv_heads, 16}, 2, dtype());
    const Tensor v = normal({4, 12, kv_heads, 16}, 3, dtype());
    for (const int64_t window : {0, 3}) {
      const KeyCounts counts{{9, 1, 4}, window};
      const Tensor expected = portable::cache_attention(q, k, v, counts);
      const KeyCounts sent = with_keys_seen(counts, there(at::tensor(counts.of_row) - 1));
      for (const KeyCounts& each : {sent, counts}) {
        const Tensor y = cache_attention(there(q), there(k), there(v), each);
        expect_near(y, expected, 9 + 16, fmt::format("{} heads of {}, window {}", heads, kv_heads, window));
        const AttentionOptions capped{.scale = 0.4, .soft_cap = 0.7};
        expect_near(cache_attention(there(q), there(k), there(v), each, capped),
                    portable::cache_attention(q, k, v, counts, capped), 9 + 16, "with a cap");
      }
    }
  }
}

TEST_P(OnDevice, ExpertsGiveWhatTheyGiveOnTheCpuAndNoneToThoseWithoutTokens) {
  for (const auto& [tokens, hidden, ffn] : {std::array<int64_t, 3>{0, 16, 8}, {50, 64, 32}, {13, 17, 11}}) {
    constexpr int64_t kExperts = 6, kChoices = 2;
    // No token chooses expert 3, and the first is chosen but is not local.
    const Tensor ids = at::stack({at::arange(tokens, at::kLong) % 3, at::full({tokens}, 4, at::kLong)}, 1);
    const Tensor x = normal({tokens, hidden}, 1, dtype()), dy = normal({tokens, hidden}, 2, dtype());
    const Tensor gates = normal({tokens, kChoices}, 3).abs();
    const auto make = [&, hidden = hidden, ffn = ffn](bool gpt_oss) {
      ExpertWeights w{weight_of(normal({kExperts - 1, ffn, hidden}, 4, dtype())),
                      weight_of(normal({kExperts - 1, ffn, hidden}, 5, dtype())),
                      weight_of(normal({kExperts - 1, hidden, ffn}, 6, dtype()))};
      if (!gpt_oss) return w;
      w.gate_bias_LF = weight_of(normal({kExperts - 1, ffn}, 7, dtype()));
      w.up_bias_LF = weight_of(normal({kExperts - 1, ffn}, 8, dtype()));
      w.down_bias_LD = weight_of(normal({kExperts - 1, hidden}, 9, dtype()));
      w.unit = {.slope = 1.702F, .limit = 2, .offset = 1};
      return w;
    };
    for (const bool gpt_oss : {false, true})
      for (const auto combine : {CombineWeights::kAfterDown, CombineWeights::kBeforeDown}) {
        const auto f = [&](const ExpertWeights& weights, const Tensor& chosen) {
          return
              [&, chosen](const auto& in) { return experts(in[0], in[1], chosen, weights, 1, kExperts - 1, combine); };
        };
        const ExpertWeights w = make(gpt_oss), on = there(w);
        const Outcome expected = run(f(w, ids), {x, gates}, dy);
        const Outcome actual = run(f(on, there(ids)), {there(x), there(gates)}, there(dy));
        const int64_t terms = hidden + ffn + tokens + 1;
        expect_near(actual.y, expected.y, terms, "y");
        expect_near(actual.dx[0], expected.dx[0], terms, "dx");
        expect_near(actual.dx[1], expected.dx[1].to(dtype()), terms, "dgates");
        const auto away = on.all(), here = w.all();
        for (size_t i = 0; i < away.size(); ++i) {
          expect_near(away[i].grad, here[i].grad.to(dtype()), terms, fmt::format("weight {}", i));
          EXPECT_TRUE(away[i].grad[2].eq(0).all().item<bool>()) << "an expert without tokens got a gradient";
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
