#include "parallel/norm_over_ranks.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "kernels/accumulate.h"
#include "kernels/norm.h"
#include "ops/device.h"

namespace athanor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerPartial = 64;  // of the weight's gradient; fixes the order of its sum, as in ops/norm.cpp

struct SavedGroup : torch::CustomClassHolder {
  explicit SavedGroup(comm::Communicator& saved) : group(saved) {}
  comm::Communicator& group;
};

// One of the two projections; each function here is for a CPU tensor by kernels, and in torch ops for any other.
struct Columns {
  Tensor x;
  Weight weight;
  int64_t rows = ops::num_rows(x), width = x.size(-1);

  Tensor wide() const { return x.reshape({rows, width}).to(at::kFloat); }
};

void sum_squares(const Columns& c, const Tensor& sums) {
  if (ops::device::takes(c.x)) return static_cast<void>(Tensor(sums).copy_(c.wide().square().sum(1)));
  ops::with_element(c.x, [&](auto* tag) {
    const auto* x = ops::pointer<std::decay_t<decltype(*tag)>>(c.x);
    auto* sum = ops::pointer<float>(sums);
    ops::for_rows(c.rows, c.width, [&](int64_t begin, int64_t end) {
      kernels::square_sums(x + begin * c.width, sum + begin, end - begin, c.width);
    });
  });
}

Tensor scale(const Columns& c, const Tensor& rstd) {
  if (ops::device::takes(c.x)) {
    return (c.wide() * rstd.unsqueeze(1) * c.weight.value.to(at::kFloat)).to(c.x.scalar_type()).view(c.x.sizes());
  }
  const Tensor y = at::empty_like(c.x);
  ops::with_element(c.x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *x = ops::pointer<T>(c.x), *w = ops::pointer<T>(c.weight.value);
    T* to = ops::pointer<T>(y);
    const float* r = ops::pointer<float>(rstd);
    ops::for_rows(c.rows, c.width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * c.width;
      kernels::rms_norm_scale(x + at, w, r + begin, to + at, end - begin, c.width);
    });
  });
  return y;
}

void sum_dots(const Columns& c, const Tensor& dy, const Tensor& rstd, const Tensor& dots) {
  if (ops::device::takes(c.x)) {
    const Tensor g = dy.reshape({c.rows, c.width}).to(at::kFloat) * c.weight.value.to(at::kFloat);
    return static_cast<void>(Tensor(dots).copy_((g * c.wide() * rstd.unsqueeze(1)).sum(1)));
  }
  ops::with_element(c.x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *x = ops::pointer<T>(c.x), *w = ops::pointer<T>(c.weight.value), *d = ops::pointer<T>(dy);
    const float* r = ops::pointer<float>(rstd);
    auto* dot = ops::pointer<float>(dots);
    ops::for_rows(c.rows, c.width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * c.width;
      kernels::rms_norm_dots(d + at, x + at, w, r + begin, dot + begin, end - begin, c.width);
    });
  });
}

// Adds the weight's gradient into its bucket, where it has one.
Tensor gradient(const Columns& c, const Tensor& dy, const Tensor& rstd, const Tensor& means) {
  if (ops::device::takes(c.x)) {
    const Tensor g = dy.reshape({c.rows, c.width}).to(at::kFloat), r = rstd.unsqueeze(1), normed = c.wide() * r;
    if (c.weight.grad.defined()) Tensor(c.weight.grad).add_((g * normed).sum(0));
    const Tensor dx = r * (g * c.weight.value.to(at::kFloat) - normed * means.unsqueeze(1));
    return dx.to(c.x.scalar_type()).view(c.x.sizes());
  }
  const Tensor dx = at::empty_like(c.x);
  const int64_t blocks = (c.rows + kRowsPerPartial - 1) / kRowsPerPartial;
  const Tensor partials = at::zeros({blocks, c.width}, means.options());
  float* partial = ops::pointer<float>(partials);
  ops::with_element(c.x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *x = ops::pointer<T>(c.x), *w = ops::pointer<T>(c.weight.value), *d = ops::pointer<T>(dy);
    T* to = ops::pointer<T>(dx);
    const float *r = ops::pointer<float>(rstd), *mean = ops::pointer<float>(means);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t row = b * kRowsPerPartial, at = row * c.width, count = std::min(kRowsPerPartial, c.rows - row);
        kernels::rms_norm_backward_of_means(d + at, x + at, w, r + row, mean + row, to + at, partial + b * c.width,
                                            count, c.width);
      }
    });
  });
  if (!c.weight.grad.defined()) return dx;
  float* sum = ops::pointer<float>(c.weight.grad);
  for (int64_t b = 0; b < blocks; ++b) kernels::accumulate(sum, partial + b * c.width, c.width);
  return dx;
}

// One value for each row of q, then of k.
Tensor empty_per_row(const Columns& q, const Columns& k) {
  ATHANOR_ASSERT(q.rows == k.rows);
  return at::empty({2, q.rows}, q.x.options().dtype(at::kFloat));
}

// Sums over this rank's columns become means over all ranks'.
void to_means(const Tensor& sums, const Columns& q, const Columns& k, comm::Communicator& group) {
  group.all_reduce(sums).wait();
  sums[0].div_(static_cast<double>(q.width * group.size()));
  sums[1].div_(static_cast<double>(k.width * group.size()));
}

struct NormOverRanks : torch::autograd::Function<NormOverRanks> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Weight& q_weight,
                               const Weight& k_weight, double eps, comm::Communicator& group) {
    const Columns query{q, q_weight}, key{k, k_weight};
    const Tensor means = empty_per_row(query, key);
    sum_squares(query, means[0]);
    sum_squares(key, means[1]);
    to_means(means, query, key, group);
    const Tensor rstd = means.add_(eps).rsqrt_();
    ctx->save_for_backward({q, k});
    ctx->saved_data["rstd"] = rstd;
    ctx->saved_data["values"] = std::vector<Tensor>{q_weight.value, k_weight.value};
    if (q_weight.grad.defined()) ctx->saved_data["grads"] = std::vector<Tensor>{q_weight.grad, k_weight.grad};
    ctx->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<SavedGroup>(group));
    return {scale(query, rstd[0]), scale(key, rstd[1])};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto values = ctx->saved_data["values"].toTensorVector();
    const bool learns = ctx->saved_data.count("grads") > 0;
    const auto buckets = learns ? ctx->saved_data["grads"].toTensorVector() : std::vector<Tensor>(2);
    const Tensor rstd = ctx->saved_data["rstd"].toTensor();
    const auto held = ctx->saved_data["group"].toCapsule();
    const Columns query{saved[0], {values[0], buckets[0]}}, key{saved[1], {values[1], buckets[1]}};
    const Tensor dq = grads[0].contiguous(), dk = grads[1].contiguous(), means = empty_per_row(query, key);
    sum_dots(query, dq, rstd[0], means[0]);
    sum_dots(key, dk, rstd[1], means[1]);
    to_means(means, query, key, static_cast<SavedGroup&>(*held).group);
    return {gradient(query, dq, rstd[0], means[0]),
            gradient(key, dk, rstd[1], means[1]),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

QueryKey rms_norm_over_ranks(const QueryKey& x, const Weight& q_weight, const Weight& k_weight, double eps,
                             comm::Communicator& ranks) {
  const auto outputs = NormOverRanks::apply(x.q.contiguous(), x.k.contiguous(), q_weight, k_weight, eps, ranks);
  return {outputs[0], outputs[1]};
}

}  // namespace athanor
