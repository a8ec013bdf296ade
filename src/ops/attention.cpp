#include "ops/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/accumulate.h"
#include "ops/attention_pieces.h"
#include "ops/attention_spans.h"
#include "ops/device.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the longest first, so that no thread has a long one alone at the end.
std::vector<Run> runs_of(const std::vector<Span>& spans) {
  std::vector<Run> runs;
  for (const Span& span : spans) {
    for (int64_t b = 0; b < span.num_sequences; ++b) runs.push_back({span.first_sequence + b, span.begin, span.length});
  }
  std::ranges::stable_sort(runs, std::ranges::greater{}, &Run::length);
  return runs;
}

// Returns Σ exp of each query's scores, as a logarithm: [B, H, T].
float* logsumexp_of(const Tensor& logsumexp, const Run& run, int64_t head) {
  return pointer<float>(logsumexp) + (run.sequence * logsumexp.size(1) + head) * logsumexp.size(2) + run.begin;
}

// FLOPs of a product of every query with the keys that it sees.
double seen_flops(const std::vector<Run>& runs, const Tensor& q, int64_t window) {
  double pairs = 0;
  for (const Run& run : runs) {
    const auto length = static_cast<double>(run.length),
               hidden = window > 0 ? static_cast<double>(std::max<int64_t>(0, run.length - window)) : 0;
    pairs += (length * (length + 1) - hidden * (hidden + 1)) / 2;
  }
  return 2 * pairs * static_cast<double>(q.size(2) * q.size(3));
}

template <class T>
void forward_into(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<Run>& runs,
                  const AttentionOptions& options, const Tensor& out, const Tensor& logsumexp, const Tensor& largest) {
  constexpr int64_t kQueries = 8 * kernels::kTileRows;
  struct Piece {
    int64_t run, begin;
  };
  std::vector<Piece> pieces;
  for (size_t r = 0; r < runs.size(); ++r) {
    for (int64_t begin = 0; begin < runs[r].length; begin += kQueries)
      pieces.push_back({static_cast<int64_t>(r), begin});
  }
  const int64_t heads = q.size(2), kv_heads = k.size(2);
  const PackedKeys<T> packed(k, v, runs);
  const Tensor sinks = sinks_of(options);
  const int64_t scratch_bytes = kernels::attention_forward_scratch<T>(shape_of(q, {0, 0, 0}));
  for_each_piece(q, static_cast<int64_t>(pieces.size()) * heads, scratch_bytes, [&](int64_t i, void* scratch) {
    const int64_t per_head = static_cast<int64_t>(pieces.size()), head = i / per_head;
    const Piece& piece = pieces[static_cast<size_t>(per_head - 1 - i % per_head)];
    const Run& run = runs[static_cast<size_t>(piece.run)];
    const int64_t kv = piece.run * kv_heads + head / (heads / kv_heads);
    kernels::attention_forward<T>(shape_of(q, run, options, sinks, head), rows_of<const T>(q, run, head),
                                  packed.keys(kv), packed.values(kv), rows_of<T>(out, run, head),
                                  logsumexp_of(logsumexp, run, head),
                                  largest.defined() ? logsumexp_of(largest, run, head) : nullptr, piece.begin,
                                  std::min(run.length, piece.begin + kQueries), scratch);
  });
  // Two products: queries with keys, and weights with values.
  played("attention", {q, k, v}, {out, logsumexp, largest}, 2 * seen_flops(runs, q, options.window));
}

// Adds the rows of [R, width] to `sum` [width], one after the other.
void add_in_order(const Tensor& rows, const Tensor& sum) {
  for (int64_t r = 0; r < rows.size(0); ++r)
    kernels::accumulate(pointer<float>(sum), pointer<float>(rows) + r * rows.size(1), rows.size(1));
}

struct Inputs {
  const Tensor &q, &k, &v, &out, &dout, &logsumexp;
};
struct Gradients {
  Tensor dq, dk, dv;
};

template <class T>
void backward_into(const Inputs& in, const std::vector<Run>& runs, const AttentionOptions& options,
                   const Gradients& grads) {
  if (runs.empty()) return;
  const int64_t kv_heads = in.k.size(2), group = in.q.size(2) / kv_heads;
  const int64_t scratch_bytes = kernels::attention_backward_scratch<T>(shape_of(in.q, runs.front(), options));
  const Tensor sinks = sinks_of(options),
               of_runs = sinks.defined()
                             ? at::empty({static_cast<int64_t>(runs.size()), sinks.numel()}, sinks.options())
                             : Tensor();
  for_each_piece(in.q, static_cast<int64_t>(runs.size()) * kv_heads, scratch_bytes, [&](int64_t i, void* scratch) {
    const Run& run = runs[static_cast<size_t>(i / kv_heads)];
    const int64_t kv = i % kv_heads;
    std::vector<kernels::AttentionQueries<T>> queries;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      queries.push_back({rows_of<const T>(in.q, run, h), rows_of<const T>(in.out, run, h),
                         rows_of<const T>(in.dout, run, h), logsumexp_of(in.logsumexp, run, h),
                         rows_of<T>(grads.dq, run, h)});
      if (sinks.defined()) {
        queries.back().sink = pointer<float>(sinks)[h];
        queries.back().sink_gradient = pointer<float>(of_runs) + i / kv_heads * sinks.numel() + h;
      }
    }
    kernels::attention_backward<T>(shape_of(in.q, run, options), queries.data(), group, rows_of<const T>(in.k, run, kv),
                                   rows_of<const T>(in.v, run, kv), rows_of<T>(grads.dk, run, kv),
                                   rows_of<T>(grads.dv, run, kv), scratch);
  });
  // The scores again, and the gradients of weights, queries, keys and values.
  played("attention_backward", {in.q, in.k, in.v, in.out, in.dout, in.logsumexp}, {grads.dq, grads.dk, grads.dv},
         5 * seen_flops(runs, in.q, options.window));
  if (sinks.defined() && !sinks.is_meta()) add_in_order(of_runs, options.sinks.grad);
}

// The largest logit of each query, [B, H, T] like the logsumexp, or undefined. Not a tensor, so that autograd leaves it
// alone.
struct LargestLogits {
  Tensor of_query;
};

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<Span>& spans, const AttentionOptions& options, const LargestLogits& largest) {
    Tensor out = at::empty(q.sizes(), q.options());
    const Tensor logsumexp = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    with_element(q, [&](auto* tag) {
      forward_into<std::decay_t<decltype(*tag)>>(q, k, v, runs_of(spans), options, out, logsumexp, largest.of_query);
    });
    ctx->save_for_backward({q, k, v, out});
    ctx->saved_data["logsumexp"] = logsumexp;
    ctx->saved_data["spans"] = numbers_of(spans);
    ctx->saved_data["options"] = numbers_of(options);
    ctx->saved_data["sinks"] = options.sinks.value;
    ctx->saved_data["sinks_grad"] = options.sinks.grad;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor dout = with_dense_heads(grads[0]), logsumexp = ctx->saved_data["logsumexp"].toTensor();
    const Inputs in{saved[0], saved[1], saved[2], saved[3], dout, logsumexp};
    const auto empty = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const Gradients into{empty(in.q), empty(in.k), empty(in.v)};
    const auto spans = spans_of(ctx->saved_data["spans"].toIntVector());
    AttentionOptions options = options_of(ctx->saved_data["options"]);
    options.sinks = {ctx->saved_data["sinks"].toTensor(), ctx->saved_data["sinks_grad"].toTensor()};
    with_element(in.q,
                 [&](auto* tag) { backward_into<std::decay_t<decltype(*tag)>>(in, runs_of(spans), options, into); });
    return {into.dq, into.dk, into.dv, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                 const AttentionOptions& options) {
  if (device::takes(q)) return device::attention(q, k, v, documents, options);
  // A played step takes our form for the library's kernel, whose results have the same shapes.
  const bool stands_for_library = q.is_meta() && !options.needs_steps();
  if (!multiplies_on_tiles(q, ProductKind::kAttention) && !stands_for_library)
    return library::attention(q, k, v, documents, options);
  return Attention::apply(with_dense_heads(q), with_dense_heads(k), with_dense_heads(v),
                          spans_of(q.size(0), q.size(1), documents), options, LargestLogits{});
}

Tensor attention_with_logits(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                             Tensor& largest, const AttentionOptions& options) {
  const bool has_logits = !device::takes(q) && multiplies_on_tiles(q, ProductKind::kAttention) &&
                          options.soft_cap == 0 && !options.sinks.defined() && q.numel() > 0;
  if (!has_logits) {
    {
      const at::NoGradGuard no_grad;
      largest = largest_attention_logits(q, k, documents, options);
    }
    return attention(q, k, v, documents, options);
  }
  const Tensor of_query = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
  const Tensor out = Attention::apply(with_dense_heads(q), with_dense_heads(k), with_dense_heads(v),
                                      spans_of(q.size(0), q.size(1), documents), options, LargestLogits{of_query});
  largest = of_query.amax(2);
  return out;
}

namespace {

constexpr int64_t kBlockRows = 64;  // queries at once

// q [kv_heads, heads of each, L, d], k [kv_heads, L, d] of tokens that attend among themselves → [heads].
Tensor largest_of_run(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  const int64_t length = k.size(1), dim = k.size(2);
  Tensor largest;
  for (int64_t row = 0; row < length; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, length - row), seen = row + rows;
    const Tensor block = q.narrow(2, row, rows).reshape({q.size(0), -1, dim});
    const Tensor logits =
        at::matmul(block, k.narrow(1, 0, seen).transpose(1, 2)).view({q.size(0), q.size(1), rows, seen});
    Tensor visible = at::ones({rows, seen}, logits.options().dtype(at::kBool)).tril_(row);
    if (options.window > 0) visible.triu_(row + 1 - options.window);
    const Tensor here =
        logits.masked_fill_(visible.logical_not_(), -std::numeric_limits<float>::infinity()).amax({2, 3});
    largest = largest.defined() ? at::maximum(largest, here) : here;
  }
  return largest.reshape({-1});
}

}  // namespace

Tensor largest_attention_logits(const Tensor& q, const Tensor& k, const DocumentLengths& documents,
                                const AttentionOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t batch = q.size(0), heads = q.size(2), kv_heads = k.size(2), dim = q.size(3);
  Tensor largest = at::full({batch, heads}, -std::numeric_limits<float>::infinity(), q.options().dtype(at::kFloat));
  for (const Span& span : spans_of(batch, q.size(1), documents)) {
    for (int64_t b = span.first_sequence; b < span.first_sequence + span.num_sequences; ++b) {
      const Tensor keys = k[b].narrow(0, span.begin, span.length).transpose(0, 1).to(at::kFloat);
      const Tensor queries = q[b].narrow(0, span.begin, span.length).transpose(0, 1).to(at::kFloat);
      const Tensor here =
          largest_of_run(queries.reshape({kv_heads, heads / kv_heads, span.length, dim}), keys, options);
      largest[b].copy_(at::maximum(largest[b], here));
    }
  }
  return options.scale > 0 ? largest.mul_(options.scale) : largest.div_(std::sqrt(static_cast<double>(dim)));
}

}  // namespace athanor::ops
