#include "ops/norm_rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/accumulate.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "ops/device.h"
#include "ops/norm.h"
#include "ops/played.h"
#include "ops/taken_in_turn.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Norm = NormRope::Norm;

// Tokens that go through all steps together, in a second-level cache. The same number of rows of a norm, or that number
// times the heads, share a partial sum of the weight's gradient; they are the rows of rms_norm.
constexpr int64_t kTokens = 64;

template <class T>
void keep_within(T* x, int64_t n, double clip) {
  T high;
  kernels::store(high, static_cast<float>(clip));
  const float bound = kernels::load(high);
  for (int64_t i = 0; i < n; ++i) {
    const float value = kernels::load(x[i]);
    kernels::store(x[i], value > bound ? bound : (value < -bound ? -bound : value));
  }
}

// No gradient passes if a value was beyond the bounds.
template <class T>
void stop_beyond(const T* x, T* dx, int64_t n, double clip) {
  T high;
  kernels::store(high, static_cast<float>(clip));
  const float bound = kernels::load(high);
  for (int64_t i = 0; i < n; ++i) {
    const float value = kernels::load(x[i]);
    if (!(value >= -bound && value <= bound)) dx[i] = T{};
  }
}

template <class T>
class Heads {
 public:
  Heads(const Tensor& x, const Tensor& weight, const NormRope& how, const Rotation& rotation, int64_t num_heads,
        const Tensor& rstd)
      : how_(how), num_heads_(num_heads), head_dim_(x.size(-1) / num_heads), width_(x.size(-1)),
        norm_width_(how.norm == Norm::kHead ? head_dim_ : width_), rows_per_token_(width_ / norm_width_),
        x_(pointer<T>(x)), weight_(weight.defined() ? pointer<T>(weight) : nullptr),
        rstd_(rstd.defined() ? pointer<float>(rstd) : nullptr), cos_(pointer<float>(rotation.cos)),
        sin_(pointer<float>(rotation.sin)) {}

  // `work` has room for `count` tokens.
  void forward(int64_t token, int64_t count, T* y, T* work) const {
    const T* from = x_ + token * width_;
    if (clips_before()) from = clipped(from, count * width_, work);
    if (weight_) {
      normed(from, token, count, work);
      from = work;
    }
    if (how_.clip > 0 && !clips_before()) from = clipped(from, count * width_, work);
    turn(from, token, count, y + token * width_, 1);
  }

  // `work` has room for three times `count` tokens. `partial` is that of the first row.
  void backward(const T* dy, int64_t token, int64_t count, T* dx_all, float* partials, T* work) const {
    const int64_t at = token * width_, n = count * width_;
    const T* x = x_ + at;
    T *dx = dx_all + at, *turned = weight_ ? work : dx, *first = work + n, *second = work + 2 * n;
    turn(dy + at, token, count, turned, -1);
    if (how_.clip > 0 && !clips_before()) {
      if (weight_) normed(x, token, count, second);
      stop_beyond(weight_ ? second : x, turned, n, how_.clip);
    }
    if (!weight_) return;
    const T* from = clips_before() ? clipped(x, n, first) : x;
    for (int64_t row = 0; row < count * rows_per_token_; row += kRowsPerPartial) {
      const int64_t rows = std::min(kRowsPerPartial, count * rows_per_token_ - row), begin = row * norm_width_;
      kernels::rms_norm_backward(turned + begin, from + begin, weight_, rstd_ + token * rows_per_token_ + row,
                                 dx + begin, partials, rows, norm_width_, static_cast<float>(how_.offset));
      partials += norm_width_;
    }
    if (clips_before()) stop_beyond(x, dx, n, how_.clip);
  }

  int64_t num_rows(int64_t tokens) const { return tokens * rows_per_token_; }
  int64_t norm_width() const { return norm_width_; }

 private:
  bool clips_before() const { return how_.clip > 0 && how_.norm == Norm::kHead; }

  const T* clipped(const T* from, int64_t n, T* to) const {
    if (from != to) std::copy_n(from, n, to);
    keep_within(to, n, how_.clip);
    return to;
  }
  void normed(const T* from, int64_t token, int64_t count, T* to) const {
    kernels::rms_norm_forward(from, weight_, to, rstd_ + token * rows_per_token_, count * rows_per_token_, norm_width_,
                              static_cast<float>(how_.eps), static_cast<float>(how_.offset));
  }
  void turn(const T* from, int64_t token, int64_t count, T* to, float direction) const {
    const int64_t half = head_dim_ / 2;
    kernels::rope(from, to, cos_ + token * half, sin_ + token * half, count, num_heads_, head_dim_, direction);
  }

  NormRope how_;
  int64_t num_heads_, head_dim_, width_, norm_width_, rows_per_token_;
  const T *x_, *weight_;
  float* rstd_;
  const float *cos_, *sin_;
};

// Calls f(token, count, work) for every block of tokens, with scratch of size `blocks` for each.
template <class T, class F>
void for_token_blocks(const Tensor& x, int64_t copies, F f) {
  const int64_t tokens = num_rows(x), blocks = (tokens + kTokens - 1) / kTokens;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const Tensor work = at::empty({copies * std::min(kTokens, tokens) * x.size(-1)}, x.options());
    for (int64_t b = begin; b < end; ++b) f(b * kTokens, std::min(kTokens, tokens - b * kTokens), pointer<T>(work));
  });
}

// What for_token_blocks makes, for a played step.
Tensor work_of_threads(const Tensor& x, int64_t copies) {
  const int64_t tokens = num_rows(x), blocks = (tokens + kTokens - 1) / kTokens;
  return at::empty({num_slots(blocks), copies * std::min(kTokens, tokens) * x.size(-1)}, x.options());
}

Tensor rows_of_norm(const Tensor& x, const NormRope& how, int64_t num_heads) {
  if (how.norm == Norm::kNone) return {};
  return at::empty({num_rows(x) * (how.norm == Norm::kHead ? num_heads : 1)}, x.options().dtype(at::kFloat));
}

Tensor forward_of(const Tensor& x, const Tensor& weight, const NormRope& how, const Rotation& rotation,
                  int64_t num_heads, const Tensor& rstd) {
  auto shape = x.sizes().vec();
  shape.back() /= num_heads;
  shape.insert(shape.end() - 1, num_heads);
  Tensor y = at::empty(shape, x.options());
  if (played("norm_rope", {x, weight, rotation.cos, rotation.sin}, {y, rstd})) {
    work_of_threads(x, 1);
    return y;
  }
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const Heads<T> heads(x, weight, how, rotation, num_heads, rstd);
    T* to = pointer<T>(y);
    for_token_blocks<T>(x, 1, [&](int64_t token, int64_t count, T* work) { heads.forward(token, count, to, work); });
  });
  return y;
}

struct NormRopeFunction : torch::autograd::Function<NormRopeFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const NormRope& how,
                        const Rotation& rotation, int64_t num_heads) {
    const Tensor rstd = rows_of_norm(x, how, num_heads);
    const bool reads_x = how.norm != Norm::kNone || how.clip > 0;
    ctx->save_for_backward({reads_x ? x : Tensor()});
    ctx->saved_data["tensors"] =
        std::vector<Tensor>{rotation.cos, rotation.sin, rstd.defined() ? rstd : at::empty({0}, x.options())};
    if (weight.defined()) ctx->saved_data["weight"] = std::vector<Tensor>{weight.value, weight.grad};
    ctx->saved_data["numbers"] = std::vector<int64_t>{static_cast<int64_t>(how.norm), num_heads};
    ctx->saved_data["clip"] = how.clip;
    ctx->saved_data["eps"] = how.eps;
    ctx->saved_data["offset"] = how.offset;
    return forward_of(x, weight.value, how, rotation, num_heads, rstd);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto tensors = ctx->saved_data["tensors"].toTensorVector();
    const auto numbers = ctx->saved_data["numbers"].toIntVector();
    const NormRope how{static_cast<Norm>(numbers[0]), ctx->saved_data["eps"].toDouble(),
                       ctx->saved_data["clip"].toDouble(), ctx->saved_data["offset"].toDouble()};
    const Tensor dy = grads[0].contiguous();
    const Tensor dx = at::empty(dy.sizes(), dy.options()).flatten(-2);
    const Tensor saved = ctx->get_saved_variables()[0], x = saved.defined() ? saved : dx;  // then no step reads it
    Weight weight;
    if (how.norm != Norm::kNone) {
      const auto kept = ctx->saved_data["weight"].toTensorVector();
      weight = {kept[0], kept[1]};
    }
    with_element(x, [&](auto* tag) {
      run_backward<std::decay_t<decltype(*tag)>>(x, weight, how, {tensors[0], tensors[1]}, numbers[1],
                                                 weight.defined() ? tensors[2] : Tensor(), dy, dx);
    });
    return {dx, Tensor(), Tensor(), Tensor(), Tensor()};
  }

 private:
  template <class T>
  static void run_backward(const Tensor& x, const Weight& weight, const NormRope& how, const Rotation& rotation,
                           int64_t num_heads, const Tensor& rstd, const Tensor& dy, const Tensor& dx) {
    const Heads<T> heads(x, weight.value, how, rotation, num_heads, rstd);
    const int64_t width = heads.norm_width();
    const int64_t count = weight.defined() ? (heads.num_rows(num_rows(x)) + kRowsPerPartial - 1) / kRowsPerPartial : 0;
    const Tensor partials = at::zeros({count, width}, x.options().dtype(at::kFloat));
    if (played("norm_rope_backward", {x, weight.value, rotation.cos, rotation.sin, rstd, dy},
               {dx, partials, weight.grad})) {
      work_of_threads(x, 3);
      return;
    }
    const T* from = pointer<T>(dy);
    T* to = pointer<T>(dx);
    float* sums = pointer<float>(partials);
    for_token_blocks<T>(x, 3, [&](int64_t token, int64_t tokens, T* work) {
      heads.backward(from, token, tokens, to, sums + heads.num_rows(token) / kRowsPerPartial * width, work);
    });
    for (int64_t i = 0; i < count; ++i) kernels::accumulate(pointer<float>(weight.grad), sums + i * width, width);
  }
};

template <class RmsNorm, class Turn>
Tensor one_after_the_other(Tensor x, const NormRope& how, int64_t num_heads, RmsNorm norm, Turn turn) {
  if (how.norm == Norm::kWhole) x = norm(x);
  if (how.clip > 0) x = x.clamp(-how.clip, how.clip);
  x = x.unflatten(-1, {num_heads, x.size(-1) / num_heads});
  if (how.norm == Norm::kHead) x = norm(x);
  return turn(x);
}

}  // namespace

Tensor norm_rope(const Tensor& x, const Weight& weight, const NormRope& how, const Rotation& rotation,
                 int64_t num_heads) {
  ATHANOR_ASSERT(weight.defined() == (how.norm != Norm::kNone) && x.size(-1) % (2 * num_heads) == 0);
  if (device::takes(x)) {
    return one_after_the_other(
        x, how, num_heads, [&](const Tensor& t) { return rms_norm(t, weight, how.form()); },
        [&](const Tensor& t) { return rope(t, rotation); });
  }
  const Tensor rows = x.contiguous();
  const bool learns = weight.defined() ? weight.grad.defined() : rows.requires_grad();
  if (at::GradMode::is_enabled() && learns) return NormRopeFunction::apply(rows, weight, how, rotation, num_heads);
  return forward_of(rows, weight.value, how, rotation, num_heads, rows_of_norm(rows, how, num_heads));
}

namespace portable {

Tensor norm_rope(const Tensor& x, const Tensor& weight, const NormRope& how, const Rotation& rotation,
                 int64_t num_heads) {
  return one_after_the_other(
      x, how, num_heads, [&](const Tensor& t) { return portable::rms_norm(t, weight, how.form()); },
      [&](const Tensor& t) { return portable::rope(t, rotation); });
}

}  // namespace portable
}  // namespace athanor::ops
