#include "ops/row_gate.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::row_gate_test {
namespace {

using namespace test;

struct Reference {
  Tracked y, dx, dgate;
};

Reference reference(const Tensor& x_in, const Tensor& gate_in, const Tensor& dy_in, at::ScalarType dtype) {
  const Tracked x = exact(x_in), dy = exact(dy_in), s = sigmoid(exact(gate_in));
  return {stored(s * x, dtype), stored(s * dy, dtype),
          stored(s * (exact(1.0) - s) * sum(dy * x, -1, /*keepdim=*/true), dtype)};
}

TEST(RowGate, ForwardAndBothGradientsAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{0, 8}, {1, 1}, {3, 17}, {70, 264}}) {
      const Tensor x = normal({rows, width}, 1, dtype), gate = normal({rows, 1}, 2, dtype) * 3,
                   dy = normal({rows, width}, 3, dtype);
      const Outcome fast = run([](const auto& in) { return row_gate(in[0], in[1]); }, {x, gate}, dy);
      const auto [y, dx, dgate] = reference(x, gate, dy, dtype);
      const auto name = fmt::format("{} rows of {} {}", rows, width, name_of(dtype));
      expect_within(fast.y, y, name + " y");
      expect_within(fast.dx[0], dx, name + " dx");
      expect_within(fast.dx[1], dgate, name + " dgate");
      expect_within(portable::row_gate(x, gate), y, name + " portable y");
      const Outcome oracle = run_fp64([](const auto& in) { return portable::row_gate(in[0], in[1]); }, {x, gate}, dy);
      const auto formula = reference(x, gate, dy, at::kFloat);
      expect_same_formula(oracle.y, formula.y, name + " y");
      expect_same_formula(oracle.dx[0], formula.dx, name + " dx");
      expect_same_formula(oracle.dx[1], formula.dgate, name + " dgate");
    }
  }
}

TEST(RowGate, ARowDependsNeitherOnThreadsNorOnTheRowsBesideIt) {
  const Tensor x = normal({301, 96}, 1), gate = normal({301, 1}, 2);
  const auto with = [&](int threads) {
    const Threads some(threads);
    return row_gate(x, gate);
  };
  const Tensor one = with(1);
  expect_same_bits(with(2), one, "two threads");
  expect_same_bits(row_gate(x.narrow(0, 7, 1), gate.narrow(0, 7, 1)), one.narrow(0, 7, 1), "alone");
}

}  // namespace
}  // namespace athanor::ops::row_gate_test
