#pragma once
// The spans of tokens that attend among themselves.

#include <ATen/ops/ones.h>

#include "ops/attention.h"
#include "ops/device/portable_op.h"

namespace athanor::ops {

// The tokens [begin, begin + length) of each of the sequences [first_sequence, first_sequence + num_sequences): one
// document, or with several sequences all tokens of each. Sequences do not attend to each other.
struct Span {
  int64_t first_sequence, num_sequences, begin, length;
};

// Returns the spans of a batch; documents of length 0 have none.
inline std::vector<Span> spans_of(int64_t num_sequences, int64_t seq_len, const DocumentLengths& documents) {
  if (num_sequences == 0 || seq_len == 0) return {};
  if (documents.empty()) return {{0, num_sequences, 0, seq_len}};
  ATHANOR_ASSERT(static_cast<int64_t>(documents.size()) == num_sequences);
  std::vector<Span> spans;
  for (int64_t b = 0; b < num_sequences; ++b) {
    int64_t begin = 0;
    for (const int32_t length : documents[static_cast<size_t>(b)]) {
      if (length > 0) spans.push_back({b, 1, begin, length});
      begin += length;
    }
    ATHANOR_ASSERT(begin == seq_len);
  }
  return spans;
}

// Return spans as numbers, which autograd can save, and spans from these numbers.
inline std::vector<int64_t> numbers_of(const std::vector<Span>& spans) {
  std::vector<int64_t> numbers;
  for (const Span& s : spans) {
    for (const int64_t number : {s.first_sequence, s.num_sequences, s.begin, s.length}) numbers.push_back(number);
  }
  return numbers;
}
inline std::vector<Span> spans_of(const std::vector<int64_t>& numbers) {
  std::vector<Span> spans;
  for (size_t n = 0; n < numbers.size(); n += 4)
    spans.push_back({numbers[n], numbers[n + 1], numbers[n + 2], numbers[n + 3]});
  return spans;
}

// Return options as numbers, which autograd can save, and options from these numbers, without sinks.
inline std::vector<double> numbers_of(const AttentionOptions& options) {
  return {static_cast<double>(options.window), options.scale, options.soft_cap};
}
inline AttentionOptions options_of(const c10::IValue& numbers) {
  const auto n = numbers.toDoubleVector();
  return {.window = static_cast<int64_t>(n[0]), .scale = n[1], .soft_cap = n[2]};
}

// Returns which of a span's tokens (columns) each of its tokens (rows) sees: [length, length] bool.
inline Tensor seen_in_span(int64_t length, const AttentionOptions& options, at::Device device) {
  Tensor seen = at::ones({length, length}, at::TensorOptions(at::kBool).device(device)).tril_();
  return options.window > 0 ? seen.triu_(1 - options.window) : seen;
}

// Returns the sinks as fp32, undefined if there are none.
inline Tensor sinks_of(const AttentionOptions& options) {
  return options.sinks.defined() ? options.sinks.value.to(at::kFloat).contiguous() : Tensor();
}

// Returns attend(q, k, v, options), which is computed in torch ops. Sinks are a weight: with them backward computes it
// again, and adds their gradient where it belongs.
template <class F>
Tensor attend_with_sinks(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, F attend) {
  const device::PortableForm form = [=](const std::vector<Tensor>& in) {
    AttentionOptions with_values = options;
    with_values.sinks = {in[3], {}};
    return attend(in[0], in[1], in[2], with_values);
  };
  if (at::GradMode::is_enabled() && options.sinks.grad.defined())
    return device::PortableOp::apply(at::TensorList({q, k, v}), std::vector<Weight>{options.sinks}, form);
  return form({q, k, v, options.sinks.value});
}

// Returns x with dense heads: kernels step over all dims but the last one.
inline Tensor with_dense_heads(const Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

}  // namespace athanor::ops
