// Shapes: T tokens, K choices of each, E experts, L local ones from `first` on, D hidden, F intermediate.

#include "ops/experts.h"

#include <map>
#include <utility>

#include "ops/testing/op_testing.h"

namespace athanor::ops::experts_test {
namespace {

using namespace test;

struct Case {
  int64_t tokens, hidden, ffn, k, num_experts, first, local;
  bool gpt_oss = false;  // biases, and a clamped unit in place of SwiGLU

  // K different experts for each token.
  Tensor ids() const {
    const Tensor scores = normal({tokens, num_experts}, 9);
    return std::get<1>(scores.topk(k, -1));
  }
  Tensor x(at::ScalarType dtype) const { return normal({tokens, hidden}, 1, dtype); }
  Tensor dy(at::ScalarType dtype) const { return normal({tokens, hidden}, 2, dtype); }
  Tensor gates() const { return normal({tokens, k}, 3).abs(); }
  ExpertWeights weights(at::ScalarType dtype, double already = 0) const {
    ExpertWeights w{weight_of(normal({local, ffn, hidden}, 4, dtype), already),
                    weight_of(normal({local, ffn, hidden}, 5, dtype), already),
                    weight_of(normal({local, hidden, ffn}, 6, dtype), already)};
    if (!gpt_oss) return w;
    w.gate_bias_LF = weight_of(normal({local, ffn}, 7, dtype), already);
    w.up_bias_LF = weight_of(normal({local, ffn}, 8, dtype), already);
    w.down_bias_LD = weight_of(normal({local, hidden}, 10, dtype), already);
    w.unit = {.slope = 1.702F, .limit = 2, .offset = 1};
    return w;
  }
  std::string name(at::ScalarType dtype) const {
    return fmt::format("{} tokens of {}, {} of {} experts of {}, {} from {} on, {}{}", tokens, hidden, k, num_experts,
                       ffn, local, first, name_of(dtype), gpt_oss ? " with biases" : "");
  }
};

const std::vector<Case> kCases = {{0, 4, 3, 2, 4, 0, 4},         {1, 1, 1, 1, 1, 0, 1},
                                  {1, 8, 5, 2, 8, 0, 8},                                  // no tokens, one token
                                  {13, 17, 11, 1, 4, 0, 4},      {13, 6, 9, 4, 4, 0, 4},  // k = 1, k = E
                                  {40, 32, 48, 4, 16, 0, 16},    {40, 33, 15, 4, 16, 5, 6},
                                  {7, 8, 8, 2, 16, 12, 4},  // all experts, a range of them
                                  {70, 16, 24, 2, 4, 0, 4},      {40, 12, 16, 4, 16, 5, 4},
                                  {300, 64, 32, 8, 64, 0, 64},  // enough rows to be padded
                                  {0, 4, 3, 2, 4, 0, 4, true},   {40, 33, 15, 4, 16, 5, 6, true},
                                  {70, 16, 24, 2, 4, 0, 4, true}};

// The results by their dependence: weights by expert, gates by choice.
struct Reference {
  Tracked y, dx, dgates;
  std::vector<Tracked> dgate, dup, ddown;  // one for each local expert
  std::vector<Tracked> dgate_bias, dup_bias, ddown_bias;
};

// 1 where a number is within the limit, and unknown where its error does not tell.
Tracked is_within(const Tracked& a, double limit, bool also_below) {
  const Tensor beyond = also_below ? a.value.abs() - limit : a.value - limit;
  return {(beyond <= 0).to(at::kDouble), (beyond.abs() <= a.error).to(at::kDouble)};
}
Tracked clamped(const Tracked& a, double low, double high) { return {a.value.clamp(low, high), a.error}; }

// The factors of a unit, silu(gate) and up for SwiGLU, and their derivatives.
struct TrackedUnit {
  Tracked silu, factor, by_gate, by_up;

  TrackedUnit(const Tracked& gate, const Tracked& up, const GatedUnit& unit) {
    const Tracked one = exact(1.0), none = exact(at::ones_like(gate.value));
    const double limit = unit.limit;
    const Tracked g = unit.is_swiglu() ? gate : clamped(gate, -1e300, limit);
    const Tracked s = sigmoid(unit.is_swiglu() ? g : g * unit.slope);
    silu = g * s;
    factor = unit.is_swiglu() ? up : clamped(up, -limit, limit) + exact(static_cast<double>(unit.offset));
    const Tracked change = silu * (one - s), slope = unit.is_swiglu() ? change : change * unit.slope;
    by_gate = (s + slope) * (unit.is_swiglu() ? none : is_within(gate, limit, false));
    by_up = unit.is_swiglu() ? none : is_within(up, limit, true);
  }
};

Tracked turned(const Tracked& a) {
  return a.view([](const Tensor& t) { return t.t(); });
}

Reference reference(const Case& c, const Tensor& ids, at::ScalarType dtype) {
  const Tracked x = exact(c.x(dtype)), dy = exact(c.dy(dtype));
  const ExpertWeights w = c.weights(dtype);
  Reference r{exact(at::zeros({c.tokens, c.hidden})),
              exact(at::zeros({c.tokens, c.hidden})),
              exact(at::zeros({c.tokens, c.k})),
              {},
              {},
              {},
              {},
              {},
              {}};
  for (int64_t e = 0; e < c.local; ++e) {
    const Tracked wg = exact(w.gate_LFD.value[e]), wu = exact(w.up_LFD.value[e]), wd = exact(w.down_LDF.value[e]);
    const Tensor chosen_TK = (ids == c.first + e).to(at::kDouble);
    // Zero for tokens that did not choose this expert: all of their terms are then zero, without error.
    const Tracked gate_T1 = exact((c.gates() * chosen_TK).sum(1, /*keepdim=*/true));

    const auto with_bias = [&](const Tracked& product, const Weight& bias) {
      return bias.defined() ? stored(stored(product, dtype) + exact(bias.value[e]), dtype) : stored(product, dtype);
    };
    const TrackedUnit unit(with_bias(matmul(x, turned(wg)), w.gate_bias_LF),
                           with_bias(matmul(x, turned(wu)), w.up_bias_LF), w.unit);
    const Tracked act = stored(unit.silu * unit.factor, dtype);
    r.y = r.y + gate_T1 * with_bias(matmul(act, turned(wd)), w.down_bias_LD);

    const Tracked dact = stored(matmul(dy, wd), dtype);
    Tracked product = sum(act * dact, 1, /*keepdim=*/true);
    if (w.has_biases()) product = product + matmul(dy, exact(w.down_bias_LD.value[e].unsqueeze(1)));
    const Tracked weighted = stored(gate_T1 * act, dtype), dweighted = stored(gate_T1 * dact, dtype);
    const Tracked dg = stored(dweighted * unit.factor * unit.by_gate, dtype),
                  du = stored(dweighted * unit.silu * unit.by_up, dtype);
    r.dgates = r.dgates + product * exact(chosen_TK);
    r.dgate_bias.push_back(sum(dg, 0));
    r.dup_bias.push_back(sum(du, 0));
    r.ddown_bias.push_back(sum(dy * stored(gate_T1, dtype), 0));
    r.ddown.push_back(stored(matmul(turned(dy), weighted), dtype));
    r.dgate.push_back(stored(matmul(turned(dg), x), dtype));
    r.dup.push_back(stored(matmul(turned(du), x), dtype));
    r.dx = r.dx + stored(matmul(du, wu) + stored(matmul(dg, wg), dtype), dtype);
  }
  r.y = stored(r.y, dtype);
  r.dx = stored(r.dx, dtype);
  return r;
}

// The reference of a case with its own choices. Two tests compare with it.
const Reference& reference_of(size_t number, at::ScalarType dtype) {
  static std::map<std::pair<size_t, at::ScalarType>, Reference> made;
  const auto key = std::pair(number, dtype);
  if (!made.contains(key)) made.emplace(key, reference(kCases[number], kCases[number].ids(), dtype));
  return made.at(key);
}

Outcome run_case(const Case& c, const Tensor& ids, const ExpertWeights& w) {
  const auto dtype = w.gate_LFD.value.scalar_type();
  return run([&](const auto& in) { return experts(in[0], in[1], ids, w, c.first, c.local); }, {c.x(dtype), c.gates()},
             c.dy(dtype));
}

void expect_matches(const Case& c, const Tensor& ids, at::ScalarType dtype, const Reference& expected) {
  const ExpertWeights w = c.weights(dtype, 0.5);
  const Outcome fast = run_case(c, ids, w);
  expect_within(fast.y, expected.y, c.name(dtype) + " y");
  expect_within(fast.dx[0], expected.dx, c.name(dtype) + " dx");
  expect_within(fast.dx[1], expected.dgates, c.name(dtype) + " dgates");
  for (int64_t e = 0; e < c.local; ++e) {
    const auto name = fmt::format("{} expert {}", c.name(dtype), e);
    expect_within(w.gate_LFD.grad[e], added_to(0.5, expected.dgate[e], c.tokens), name + " gate");
    expect_within(w.up_LFD.grad[e], added_to(0.5, expected.dup[e], c.tokens), name + " up");
    expect_within(w.down_LDF.grad[e], added_to(0.5, expected.ddown[e], c.tokens), name + " down");
    if (!c.gpt_oss) continue;
    expect_within(w.gate_bias_LF.grad[e], added_to(0.5, expected.dgate_bias[e], c.tokens), name + " gate's bias");
    expect_within(w.up_bias_LF.grad[e], added_to(0.5, expected.dup_bias[e], c.tokens), name + " up's bias");
    expect_within(w.down_bias_LD.grad[e], added_to(0.5, expected.ddown_bias[e], c.tokens), name + " down's bias");
  }
}

TEST(Experts, ForwardAndAllGradientsAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (size_t i = 0; i < kCases.size(); ++i)
      expect_matches(kCases[i], kCases[i].ids(), dtype, reference_of(i, dtype));
  }
}

TEST(Experts, AllTokensOnOneExpertAreWithinTheirBounds) {
  for (const int64_t tokens : {50, 150}) {  // without padding and with it
    const Case c{tokens, 16, 24, 1, 4, 0, 4};
    const Tensor ids = at::full({tokens, 1}, 2, at::kLong);
    for (const auto dtype : kComputeTypes) expect_matches(c, ids, dtype, reference(c, ids, dtype));
  }
}

TEST(Experts, PortableFormAgreesWithTheFormulaInFp64) {
  for (size_t i = 0; i < kCases.size(); ++i) {
    const Case& c = kCases[i];
    const Tensor ids = c.ids();
    const ExpertWeights w = c.weights(at::kFloat);
    const auto f = [&](const auto& in) {
      return portable::experts(in[0], in[1], ids, w.with_values({in.begin() + 2, in.end()}), c.first, c.local);
    };
    std::vector<Tensor> inputs = {c.x(at::kFloat), c.gates()};
    for (const Weight& weight : w.all()) inputs.push_back(weight.value);
    const Outcome oracle = run_fp64(f, inputs, c.dy(at::kFloat));
    const Reference& expected = reference_of(i, at::kFloat);
    const auto name = c.name(at::kFloat);
    expect_same_formula(oracle.y, expected.y, name + " y");
    expect_same_formula(oracle.dx[0], expected.dx, name + " dx");
    expect_same_formula(oracle.dx[1], expected.dgates, name + " dgates");
    for (int64_t e = 0; e < c.local; ++e) {
      expect_same_formula(oracle.dx[2][e], expected.dgate[e], name + " gate");
      expect_same_formula(oracle.dx[3][e], expected.dup[e], name + " up");
      expect_same_formula(oracle.dx[4][e], expected.ddown[e], name + " down");
      if (!c.gpt_oss) continue;
      expect_same_formula(oracle.dx[5][e], expected.dgate_bias[e], name + " gate's bias");
      expect_same_formula(oracle.dx[6][e], expected.dup_bias[e], name + " up's bias");
      expect_same_formula(oracle.dx[7][e], expected.ddown_bias[e], name + " down's bias");
    }
    for (const auto dtype : kComputeTypes) {
      const ExpertWeights typed = c.weights(dtype);
      const Tensor y = portable::experts(c.x(dtype), c.gates(), ids, typed, c.first, c.local);
      EXPECT_EQ(y.scalar_type(), dtype);
      if (dtype == at::kFloat) expect_within(y, expected.y, c.name(dtype) + " portable y");
    }
  }
}

}  // namespace
}  // namespace athanor::ops::experts_test
