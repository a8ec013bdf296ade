#include <gtest/gtest.h>

#include <array>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/testing/device.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace athanor::kernels::elementwise_test {
namespace {

using namespace test;

class ElementwiseOn : public OnEachPlace {};
ATHANOR_ON_EACH_PLACE(ElementwiseOn);

TEST_P(ElementwiseOn, SwigluHasTheBitsOfItsFormulaForwardAndBackwardInPlace) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t n : {0, 1, 8, 103, 4096}) {
      const auto gate = numbers<T>(n, 1, 12), up = numbers<T>(n, 2), dout = numbers<T>(n, 3);
      const auto g = put(gate), u = put(up), d = put(dout), out = put(garbage<T>(n));
      if (is_cpu()) {
        swiglu_forward(g.data(), u.data(), out.data(), n);
        swiglu_backward(d.data(), g.data(), u.data(), g.data(), u.data(), n);
      } else {
        cuda::swiglu_forward(stream(), g.data(), u.data(), out.data(), n);
        cuda::swiglu_backward(stream(), d.data(), g.data(), u.data(), g.data(), u.data(), n);
      }
      std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size());
      for (size_t i = 0; i < gate.size(); ++i) {
        const float gi = load(gate[i]), ui = load(up[i]), di = load(dout[i]), s = sigmoid(gi);
        store(y[i], gi * s * ui);
        store(dup[i], di * (gi * s));
        store(dgate[i], di * ui * (s + gi * s * (1.0f - s)));
      }
      expect_same_bits(out.values(), y, "out");
      expect_same_bits(g.values(), dgate, "dgate");
      expect_same_bits(u.values(), dup, "dup");
    }
  });
}

TEST_P(ElementwiseOn, RopeTurnsEachPairByItsTokensAngleInPlaceToo) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& [tokens, heads, dim] :
         {std::array<int64_t, 3>{0, 2, 4}, {1, 1, 2}, {5, 3, 6}, {7, 2, 64}, {33, 4, 128}}) {
      const int64_t half = dim / 2, n = tokens * heads * dim;
      const auto x = numbers<T>(n, 4);
      const auto cos = numbers<float>(tokens * half, 5), sin = numbers<float>(tokens * half, 6);
      const auto from = put(x), to = put(garbage<T>(n));
      const auto c = put(cos), s = put(sin);
      if (is_cpu()) {
        rope(from.data(), to.data(), c.data(), s.data(), tokens, heads, dim, -1);
        rope(from.data(), from.data(), c.data(), s.data(), tokens, heads, dim, 1);
      } else {
        cuda::rope(stream(), from.data(), to.data(), c.data(), s.data(), tokens, heads, dim, -1);
        cuda::rope(stream(), from.data(), from.data(), c.data(), s.data(), tokens, heads, dim, 1);
      }
      auto back = x, forth = x;
      for (int64_t i = 0; i < n; ++i) {
        if (i % dim >= half) continue;
        const int64_t angle = i / dim / heads * half + i % dim;
        const float a = load(x[i]), b = load(x[i + half]);
        store(forth[i], a * cos[angle] - b * sin[angle]);
        store(forth[i + half], b * cos[angle] + a * sin[angle]);
        store(back[i], a * cos[angle] - b * -sin[angle]);
        store(back[i + half], b * cos[angle] + a * -sin[angle]);
      }
      expect_same_bits(to.values(), back, "backward");
      expect_same_bits(from.values(), forth, "forward in place");
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::elementwise_test
