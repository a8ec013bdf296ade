#include "parallel/vocabulary.h"

#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "base/fault.h"
#include "kernels/cross_entropy.h"
#include "ops/device.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/tiles.h"

namespace athanor {
namespace {

using kernels::kNoTarget;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A chunk's logits of the rank's rows, and what the ranks make of them together; fp32, one value for each token.
struct Chunk {
  Tensor logits, targets;
  int64_t first;  // id of the first column
  Tensor maxima, sums, at_target, earlier;

  int64_t rows() const { return logits.size(0); }
  int64_t width() const { return logits.size(1); }
};

// The kernels' portable form, for tensors that are not on the CPU.
namespace portable {

Tensor has_target(const Chunk& c) { return c.targets != kNoTarget; }
Tensor columns_of_targets(const Chunk& c) { return (c.targets - c.first).unsqueeze(1); }
Tensor is_here(const Chunk& c) {
  const Tensor column = columns_of_targets(c);
  return (column >= 0).logical_and(column < c.width()).logical_and(has_target(c).unsqueeze(1));
}

void find_maxima(const Chunk& c) {
  const double none = -std::numeric_limits<double>::infinity();
  Tensor maxima = c.maxima;
  maxima.fill_(none);
  if (c.width() > 0) maxima.copy_(c.logits.amax(1).to(at::kFloat).masked_fill(has_target(c).logical_not(), none));
}

void add_exponentials(const Chunk& c) {
  const Tensor wide = c.logits.to(at::kFloat), peak = c.maxima.unsqueeze(1), here = is_here(c);
  const Tensor column = columns_of_targets(c).masked_fill(here.logical_not(), 0);
  Tensor sums = c.sums, at_target = c.at_target, earlier = c.earlier;
  sums.copy_((wide - peak).exp().sum(1).masked_fill(has_target(c).logical_not(), 0));
  at_target.zero_();
  if (c.width() > 0) at_target.copy_(wide.gather(1, column).masked_fill(here.logical_not(), 0).squeeze(1));
  if (!earlier.defined()) return;
  const Tensor below = at::arange(c.width(), column.options()).unsqueeze(0) < columns_of_targets(c);
  earlier.copy_((wide >= peak).logical_and(below).any(1).logical_and(has_target(c)));
}

void to_gradient(const Chunk& c, double grad_scale) {
  const Tensor here = is_here(c), column = columns_of_targets(c).masked_fill(here.logical_not(), 0);
  Tensor softmax = (c.logits.to(at::kFloat) - c.maxima.unsqueeze(1)).exp() / c.sums.unsqueeze(1);
  if (c.width() > 0) softmax = softmax.scatter_add(1, column, here.to(at::kFloat).neg());
  c.logits.copy_((softmax * grad_scale).masked_fill(has_target(c).logical_not().unsqueeze(1), 0));
}

}  // namespace portable

// f(T's tag, begin, end) for every range of rows, on every thread.
template <class F>
void for_logits(const Chunk& c, F f) {
  ops::with_element(c.logits, [&](auto* tag) {
    auto* logits = ops::pointer<std::decay_t<decltype(*tag)>>(c.logits);
    ops::for_rows(c.rows(), c.width(), [&](int64_t begin, int64_t end) {
      f(logits + begin * c.width(), c.targets.const_data_ptr<int64_t>() + begin, begin, end - begin);
    });
  });
}

void find_maxima(const Chunk& c) {
  if (ops::device::takes(c.logits)) return portable::find_maxima(c);
  float* maxima = ops::pointer<float>(c.maxima);
  for_logits(c, [&](auto* logits, const int64_t* targets, int64_t begin, int64_t rows) {
    kernels::row_maxima(logits, targets, maxima + begin, rows, c.width());
  });
}

void add_exponentials(const Chunk& c) {
  if (ops::device::takes(c.logits)) return portable::add_exponentials(c);
  const float* maxima = ops::pointer<float>(c.maxima);
  float *sums = ops::pointer<float>(c.sums), *at_target = ops::pointer<float>(c.at_target);
  float* earlier = c.earlier.defined() ? ops::pointer<float>(c.earlier) : nullptr;
  for_logits(c, [&](auto* logits, const int64_t* targets, int64_t begin, int64_t rows) {
    kernels::exp_sums(logits, targets, maxima + begin, sums + begin, at_target + begin,
                      earlier ? earlier + begin : nullptr, rows, c.width(), c.first);
  });
}

void to_gradient(const Chunk& c, double grad_scale) {
  if (ops::device::takes(c.logits)) return portable::to_gradient(c, grad_scale);
  const float *maxima = ops::pointer<float>(c.maxima), *sums = ops::pointer<float>(c.sums);
  for_logits(c, [&](auto* logits, const int64_t* targets, int64_t begin, int64_t rows) {
    kernels::softmax_gradient(logits, targets, maxima + begin, sums + begin, rows, c.width(), c.first,
                              static_cast<float>(grad_scale));
  });
}

// What the ranks know of a chunk together. `scores` also asks who reaches a maximum first.
Chunk share_chunk(const Tensor& logits, const Tensor& targets, int64_t first, bool scores, const TensorRanks& ranks) {
  const auto fp32 = logits.options().dtype(at::kFloat);
  const Tensor sums = at::empty({scores ? 3 : 2, logits.size(0)}, fp32);
  Chunk chunk{logits, targets, first, at::empty({logits.size(0)}, fp32), sums[0], sums[1], scores ? sums[2] : Tensor()};
  find_maxima(chunk);
  ranks.group->all_reduce(chunk.maxima, comm::Reduction::kMax).wait();
  add_exponentials(chunk);
  ranks.group->all_reduce(sums).wait();
  return chunk;
}

// fp32 [rows]; 0 without a target.
Tensor losses_of(const Chunk& c) {
  return at::where(portable::has_target(c), (c.maxima - c.at_target) + c.sums.log(), 0.0f);
}

struct Head {
  int64_t first;  // row of the vocabulary
  int64_t chunk_tokens;
  TensorRanks ranks;
};

struct VocabularyCrossEntropy : torch::autograd::Function<VocabularyCrossEntropy> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const Tensor& targets,
                        double grad_scale, const Head& head) {
    Tensor loss = at::zeros({}, x.options().dtype(at::kDouble));
    const Tensor dx = at::empty_like(x);
    for (int64_t begin = 0; begin < x.size(0); begin += head.chunk_tokens) {
      const int64_t count = std::min(head.chunk_tokens, x.size(0) - begin);
      const Tensor rows = x.narrow(0, begin, count), ids = targets.narrow(0, begin, count);
      const Chunk chunk =
          share_chunk(ops::matmul(rows, weight.value, /*transposed=*/true), ids, head.first, false, head.ranks);
      loss.add_(losses_of(chunk).to(at::kDouble).sum());
      to_gradient(chunk, grad_scale);
      ops::matmul_into(dx.narrow(0, begin, count), chunk.logits, weight.value, /*transposed=*/false);
      ops::add_outer_product(weight.grad, chunk.logits, rows);
    }
    ctx->saved_data["dx"] = dx;
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ATHANOR_ASSERT(grads[0].item<double>() == 1);  // the weight's part was added in forward
    Tensor dx = ctx->saved_data["dx"].toTensor();
    ctx->saved_data.clear();  // whoever adds the parts up may do it in place
    return {std::move(dx), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// The rank's first row, where the loss looks for it.
Head head_of(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t vocab_size, int64_t chunk_tokens,
             const TensorRanks& ranks) {
  ATHANOR_ASSERT(chunk_tokens > 0 && x.dim() == 2 && targets.numel() == x.size(0));
  const int64_t first = first_vocabulary_row(vocab_size, ranks.rank(), ranks.size());
  ATHANOR_ASSERT(first + weight.size(0) == first_vocabulary_row(vocab_size, ranks.rank() + 1, ranks.size()));
  ops::check_targets(targets.cpu(), vocab_size);
  const bool is_off = ranks.rank() == 1 && fault_planted("tensor.vocabulary_offset");
  return {first + (is_off ? 1 : 0), chunk_tokens, ranks};
}

}  // namespace

int64_t first_vocabulary_row(int64_t vocab_size, int rank, int ranks) { return vocab_size * rank / ranks; }

Tensor vocabulary_embedding(const Tensor& tokens, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks) {
  if (ranks.alone()) return ops::embedding(tokens, weight);
  const int64_t first = first_vocabulary_row(vocab_size, ranks.rank(), ranks.size()), width = weight.value.size(1);
  const Tensor rows = tokens.reshape({-1}) - first;
  const Tensor here = (rows >= 0).logical_and(rows < weight.value.size(0)).nonzero().squeeze(1);
  // Rows of tokens that are here are put among zeros; backward takes them out again.
  Tensor out = at::zeros({rows.numel(), width}, weight.value.options());
  out.index_copy_(0, here, ops::embedding(rows.index_select(0, here), weight));
  return leave_tensor_parallel(out.view({tokens.size(0), tokens.size(1), width}), ranks);
}

Tensor vocabulary_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, int64_t vocab_size,
                                double grad_scale, int64_t chunk_tokens, const TensorRanks& ranks) {
  if (ranks.alone()) return ops::linear_cross_entropy(x, weight, targets, grad_scale, chunk_tokens);
  ATHANOR_ASSERT(grad_scale != 0 && weight.grad.defined());
  const Tensor ids = targets.contiguous();
  const Head head = head_of(x, weight.value, ids, vocab_size, chunk_tokens, ranks);
  return VocabularyCrossEntropy::apply(x.contiguous(), weight, ids, grad_scale, head);
}

ops::TokenLosses vocabulary_token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                         int64_t vocab_size, int64_t chunk_tokens, const TensorRanks& ranks) {
  if (ranks.alone()) return ops::token_losses(x, weight, targets, chunk_tokens);
  const at::NoGradGuard no_grad;
  const Tensor ids = targets.contiguous();
  const Head head = head_of(x, weight, ids, vocab_size, chunk_tokens, ranks);
  const ops::TokenLosses result{at::empty({x.size(0)}, x.options().dtype(at::kFloat)),
                                at::empty({x.size(0)}, x.options().dtype(at::kBool))};
  for (int64_t begin = 0; begin < x.size(0); begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, x.size(0) - begin);
    const Tensor logits = ops::matmul(x.narrow(0, begin, count), weight, /*transposed=*/true);
    const Chunk chunk = share_chunk(logits, ids.narrow(0, begin, count), head.first, true, ranks);
    result.loss.narrow(0, begin, count).copy_(losses_of(chunk));
    const Tensor reaches = (chunk.at_target == chunk.maxima).logical_and(chunk.earlier == 0);
    result.is_greedy.narrow(0, begin, count).copy_(reaches.logical_and(portable::has_target(chunk)));
  }
  return result;
}

}  // namespace athanor
