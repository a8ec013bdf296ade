#include "ops/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/accumulate.h"
#include "ops/device.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor look_up(const Tensor& tokens, const Tensor& weight) {
  auto shape = tokens.sizes().vec();
  shape.push_back(weight.size(1));
  return at::index_select(weight, 0, tokens.reshape({-1})).view(shape);
}

struct Embedding : torch::autograd::Function<Embedding> {
  static Tensor forward(AutogradContext* ctx, const Tensor& /*anchor*/, const Tensor& tokens, const Weight& weight) {
    ctx->saved_data["tokens"] = tokens;
    ctx->saved_data["grad"] = weight.grad;
    return look_up(tokens, weight.value);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor tokens = ctx->saved_data["tokens"].toTensor().reshape({-1}).contiguous();
    const Tensor grad = ctx->saved_data["grad"].toTensor();
    const Tensor dy = grads[0].contiguous();
    if (played("embedding_backward", {dy}, {grad})) return {Tensor(), Tensor(), Tensor()};
    const int64_t width = grad.size(1), rows = tokens.numel();
    const auto* ids = tokens.const_data_ptr<int64_t>();
    float* sum = pointer<float>(grad);
    with_element(dy, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      const T* from = pointer<T>(dy);
      // Threads own columns, not rows: the same thread adds two tokens of one id, in order.
      at::parallel_for(0, width, 128, [&](int64_t begin, int64_t end) {
        for (int64_t r = 0; r < rows; ++r) {
          kernels::accumulate(sum + ids[r] * width + begin, from + r * width + begin, end - begin);
        }
      });
    });
    return {Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embedding(const Tensor& tokens, const Weight& weight) {
  if (device::takes(weight.value)) return device::embedding(tokens, weight);
  if (!at::GradMode::is_enabled() || !weight.grad.defined()) return look_up(tokens, weight.value);
  const Tensor anchor = at::empty({0}, weight.value.options()).requires_grad_();
  return Embedding::apply(anchor, tokens, weight);
}

namespace {

// The places of the ids that are in a table of `rows` rows. In a played step each row of the vocabulary has as many.
Tensor places_here(const Tensor& ids, int64_t rows) {
  const Tensor is_here = (ids >= 0).logical_and(ids < rows);
  if (!ids.is_meta()) return is_here.nonzero().squeeze(1);
  return at::empty({ids.numel() * rows / played_numbers().vocab_size}, ids.options());
}

// Rows of ids in the table are put among zeros; backward takes them out again.
Tensor partial_on_host(const Tensor& ids, const Weight& weight) {
  const Tensor here = places_here(ids, weight.value.size(0));
  Tensor out = at::zeros({ids.numel(), weight.value.size(1)}, weight.value.options());
  out.index_copy_(0, here, embedding(ids.index_select(0, here), weight));
  return out;
}

// Every id reads a row, so that the host need not know how many are in the table. The others read a row each that
// depends on their id (one row for all of them would get all their gradients, one after the other), and become zeros.
Tensor partial_there(const Tensor& ids, const Weight& weight) {
  const int64_t count = weight.value.size(0);
  const Tensor is_here = (ids >= 0).logical_and(ids < count).unsqueeze(1);
  const Tensor found = embedding(ids.remainder(count), weight);
  return at::where(is_here, found, at::zeros({}, found.options()));
}

}  // namespace

Tensor partial_embedding(const Tensor& ids, const Weight& weight) {
  return on_host(ids) ? partial_on_host(ids, weight) : partial_there(ids, weight);
}

}  // namespace athanor::ops
