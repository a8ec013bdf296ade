// Forms for meta tensors of the ops that libtorch has for CUDA alone: the results have their shapes, and what the
// kernels take for a moment is allocated and freed.
//
// The schemas of attention differ between versions of libtorch at the end of their arguments, so it is registered
// boxed.

#include "ops/device/played_library.h"

#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cuda/attention_memory.h"
#include "ops/played.h"

namespace athanor::ops::device {
namespace {

using kernels::cuda::AttentionShape;
using torch::jit::Stack;

void take(const Tensor& like, int64_t bytes) { at::empty({bytes}, like.options().dtype(at::kByte)); }

// A gradient of x, without values.
Tensor gradient_of(const Tensor& x) { return at::empty(x.sizes(), x.options()); }

// Takes a call's arguments off the stack.
Stack arguments_of(const c10::OperatorHandle& op, Stack& stack) {
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  Stack arguments(stack.end() - count, stack.end());
  torch::jit::drop(stack, static_cast<size_t>(count));
  return arguments;
}

Tensor tensor_of(const c10::IValue& value) { return value.isNone() ? Tensor() : value.toTensor(); }

// q [tokens, heads, D] with offsets, [B, T, heads, D] without; the memory-efficient kernel has one dim more with
// offsets.
AttentionShape shape_of(const Tensor& q, const Tensor& k, const Tensor& offsets, const c10::IValue& longest) {
  const int64_t tokens = q.numel() / (q.size(-1) * q.size(-2)),
                seq_len = offsets.defined() ? longest.toInt() : q.size(1);
  return {tokens / seq_len,
          seq_len,
          q.size(-2),
          k.size(-2),
          q.size(-1),
          offsets.defined() ? offsets.numel() - 1 : 0,
          q.scalar_type() == at::kBFloat16};
}

// Products of half of the scores, as causal attention has them; a window leaves fewer.
void report_attention(const char* name, const AttentionShape& shape, int64_t window, double products, Tensors read,
                      Tensors written) {
  const auto seen = static_cast<double>(window > 0 ? std::min(window, shape.seq_len) : shape.seq_len);
  const double pairs =
      static_cast<double>(shape.tokens()) * (seen - seen * seen / (2 * static_cast<double>(shape.seq_len)));
  report(name, read, written, products * 2 * pairs * static_cast<double>(shape.heads * shape.head_dim));
}

int64_t window_of(const c10::IValue& keys_before) { return keys_before.isNone() ? 0 : keys_before.toInt() + 1; }

void flash_forward(const c10::OperatorHandle& op, Stack* stack) {
  const Stack in = arguments_of(op, *stack);
  const Tensor q = in[0].toTensor(), k = in[1].toTensor(), v = in[2].toTensor(), offsets = tensor_of(in[3]);
  const auto sums =
      offsets.defined() ? std::vector{q.size(1), q.size(0)} : std::vector{q.size(0), q.size(2), q.size(1)};
  const Tensor out = at::empty(q.sizes(), q.options()), logsumexp = at::empty(sums, q.options().dtype(at::kFloat));
  report_attention("flash_attention", shape_of(q, k, offsets, in[5]), window_of(in[11]), 2, {q, k, v},
                   {out, logsumexp});
  const auto state = q.options().dtype(at::kUInt64);
  torch::jit::push(*stack, out, logsumexp, at::empty({2}, state), at::empty({}, state), at::empty({0}, q.options()));
}

void flash_backward(const c10::OperatorHandle& op, Stack* stack) {
  const Stack in = arguments_of(op, *stack);
  const Tensor dout = in[0].toTensor(), q = in[1].toTensor(), k = in[2].toTensor(), v = in[3].toTensor();
  const Tensor offsets = tensor_of(in[6]);
  const Tensor dq = gradient_of(q), dk = gradient_of(k), dv = gradient_of(v);
  const AttentionShape shape = shape_of(q, k, offsets, in[8]);
  take(q, kernels::cuda::flash_backward_bytes(shape));
  report_attention("flash_attention_backward", shape, window_of(in[15]), 5, {dout, q, k, v}, {dq, dk, dv});
  torch::jit::push(*stack, dq, dk, dv);
}

void efficient_forward(const c10::OperatorHandle& op, Stack* stack) {
  const Stack in = arguments_of(op, *stack);
  const Tensor q = in[0].toTensor(), k = in[1].toTensor(), v = in[2].toTensor(), offsets = tensor_of(in[4]);
  const AttentionShape shape = shape_of(q, k, offsets, in[6]);
  const Tensor out = at::empty(q.sizes(), q.options());
  const Tensor logsumexp = at::empty({shape.parts(), shape.heads, kernels::cuda::efficient_rows(shape.seq_len)},
                                     q.options().dtype(at::kFloat));
  report_attention("efficient_attention", shape, 0, 2, {q, k, v}, {out, logsumexp});
  const auto state = q.options().dtype(at::kLong);
  torch::jit::push(*stack, out, logsumexp, at::empty({}, state), at::empty({}, state), shape.seq_len, shape.seq_len);
}

void efficient_backward(const c10::OperatorHandle& op, Stack* stack) {
  const Stack in = arguments_of(op, *stack);
  const Tensor dout = in[0].toTensor(), q = in[1].toTensor(), k = in[2].toTensor(), v = in[3].toTensor();
  const Tensor offsets = tensor_of(in[6]);
  const Tensor dq = gradient_of(q), dk = gradient_of(k), dv = gradient_of(v);
  const AttentionShape shape = shape_of(q, k, offsets, in[8]);
  const auto scratch = kernels::cuda::efficient_backward_bytes(shape);
  for (const int64_t bytes : {scratch.forming_sums, scratch.rest}) take(q, bytes);
  report_attention("efficient_attention_backward", shape, 0, 5, {dout, q, k, v}, {dq, dk, dv});
  torch::jit::push(*stack, dq, dk, dv, Tensor());
}

Tensor grouped_mm(const Tensor& a, const Tensor& b, const std::optional<Tensor>& ends,
                  const std::optional<Tensor>& /*bias*/, std::optional<at::ScalarType> /*dtype*/) {
  if (b.dim() == 2) return at::empty({ends->size(0), a.size(0), b.size(1)}, a.options());
  return at::empty({a.size(0), b.size(2)}, a.options());
}

Tensor mm_in_type(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
}

// A block that is freed is taken as free at once, as libtorch's allocator counts it.
void record_stream(Tensor& /*self*/, c10::Stream /*stream*/) {}

}  // namespace

void install_played_library() {
  // It stays as long as the process.
  static auto& m = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  m.impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&flash_forward>());
  m.impl("_flash_attention_backward", torch::CppFunction::makeFromBoxedFunction<&flash_backward>());
  m.impl("_efficient_attention_forward", torch::CppFunction::makeFromBoxedFunction<&efficient_forward>());
  m.impl("_efficient_attention_backward", torch::CppFunction::makeFromBoxedFunction<&efficient_backward>());
  m.impl("_grouped_mm", TORCH_FN(grouped_mm));
  m.impl("mm.dtype", TORCH_FN(mm_in_type));
  m.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace athanor::ops::device
