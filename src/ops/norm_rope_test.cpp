// Compares the single pass with the norm, the clipping and the rotation as separate ops; those are compared with fp64.

#include "ops/norm_rope.h"

#include "ops/norm.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::norm_rope_test {
namespace {

using namespace test;
using Norm = NormRope::Norm;

struct Case {
  int64_t sequences, tokens, num_heads, head_dim;
  NormRope how;

  int64_t norm_width() const { return how.norm == Norm::kHead ? head_dim : num_heads * head_dim; }
  std::string name(at::ScalarType dtype) const {
    return fmt::format("{}x{} tokens, {} heads of {}, norm {}, clip {} {}: ", sequences, tokens, num_heads, head_dim,
                       static_cast<int>(how.norm), how.clip, name_of(dtype));
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Norm norm : {Norm::kNone, Norm::kWhole, Norm::kHead}) {
    for (const double clip : {0.0, 0.7}) {
      const double offset = clip > 0 ? 1 : 0;
      for (const auto& [sequences, tokens, heads, head_dim] :
           std::vector<std::array<int64_t, 4>>{{0, 3, 2, 8}, {1, 1, 1, 2}, {2, 37, 3, 10}, {1, 130, 4, 32}}) {
        all.push_back({sequences, tokens, heads, head_dim, {norm, 1e-5, clip, offset}});
      }
    }
  }
  return all;
}

Tensor apart(const Tensor& x_in, const Weight& weight, const Case& c, const Rotation& rotation) {
  Tensor x = x_in;
  if (c.how.norm == Norm::kWhole) x = rms_norm(x, weight, c.how.form());
  if (c.how.clip > 0) x = x.clamp(-c.how.clip, c.how.clip);
  x = x.view({c.sequences, c.tokens, c.num_heads, c.head_dim});
  if (c.how.norm == Norm::kHead) x = rms_norm(x, weight, c.how.form());
  return rope(x, rotation);
}

struct Setting {
  Setting(const Case& c, at::ScalarType dtype)
      : x(normal({c.sequences, c.tokens, c.num_heads * c.head_dim}, 1, dtype)),
        dy(normal({c.sequences, c.tokens, c.num_heads, c.head_dim}, 2, dtype)),
        rotation(make_rotation(at::arange(c.tokens, at::kLong).expand({c.sequences, c.tokens}),
                               inverse_frequency(c.head_dim, 10000))) {
    if (c.how.norm != Norm::kNone) weight = weight_of(normal({c.norm_width()}, 3, dtype), 0.5);
  }
  Tensor x, dy;
  Rotation rotation;
  Weight weight;
};

TEST(NormRope, HasTheBitsOfTheOpsOneAfterTheOther) {
  for (const auto dtype : kComputeTypes) {
    for (const Case& c : cases()) {
      Setting one(c, dtype), two(c, dtype);
      const Outcome fused =
          run([&](const auto& in) { return norm_rope(in[0], one.weight, c.how, one.rotation, c.num_heads); }, {one.x},
              one.dy);
      const Outcome expected =
          run([&](const auto& in) { return apart(in[0], two.weight, c, two.rotation); }, {two.x}, two.dy);
      expect_same_bits(fused.y, expected.y, c.name(dtype) + "y");
      expect_same_bits(fused.dx[0], expected.dx[0], c.name(dtype) + "dx");
      if (one.weight.defined()) expect_same_bits(one.weight.grad, two.weight.grad, c.name(dtype) + "dw");
    }
  }
}

TEST(NormRope, PortableFormIsThePortableFormsOneAfterTheOther) {
  const Case c{2, 9, 2, 8, {Norm::kHead, 1e-5, 0}};
  const Setting s(c, at::kFloat);
  const Tensor heads = s.x.view({2, 9, 2, 8});
  expect_same_bits(portable::norm_rope(s.x, s.weight.value, c.how, s.rotation, 2),
                   portable::rope(portable::rms_norm(heads, s.weight.value, 1e-5), s.rotation), "y");
}

TEST(NormRope, WithoutAutogradGivesTheSame) {
  for (const Case& c : cases()) {
    const Setting s(c, at::kBFloat16);
    const Tensor x = s.x.clone().requires_grad_();
    const Tensor y = norm_rope(x, s.weight, c.how, s.rotation, c.num_heads);
    EXPECT_TRUE(y.requires_grad());
    const at::NoGradGuard no_grad;
    expect_same_bits(norm_rope(x, s.weight, c.how, s.rotation, c.num_heads), y.detach(), c.name(at::kBFloat16));
  }
}

TEST(NormRope, DoesNotDependOnThreads) {
  const Case c{2, 301, 3, 16, {Norm::kHead, 1e-5, 1.5}};
  const auto with = [&](int threads) {
    const Threads some(threads);
    const Setting s(c, at::kBFloat16);
    Outcome result =
        run([&](const auto& in) { return norm_rope(in[0], s.weight, c.how, s.rotation, c.num_heads); }, {s.x}, s.dy);
    result.dx.push_back(s.weight.grad);
    return result;
  };
  const Outcome one = with(1);
  for (const int threads : {2, 3}) {
    const Outcome again = with(threads);
    expect_same_bits(again.y, one.y, "y");
    expect_same_bits(again.dx[0], one.dx[0], "dx");
    expect_same_bits(again.dx[1], one.dx[1], "dw");
  }
}

}  // namespace
}  // namespace athanor::ops::norm_rope_test
