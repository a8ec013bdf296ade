#include "parallel/vocabulary.h"

#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "comm/watches.h"
#include "ops/cross_entropy_parts.h"
#include "ops/embedding.h"
#include "ops/library_functions.h"
#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/soft_cap.h"
#include "ops/tiles.h"

namespace athanor::inline parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A chunk's logits of the rank's rows, and the values that the ranks compute together; fp32, one value for each token.
struct Chunk {
  ops::LogitsPart part;
  Tensor maxima, sums, at_target, earlier;

  // 0 without a target. A wrong target has no logit: on the host it was refused before (head_of), and on a device it
  // becomes NaN, which the guard of the step refuses.
  Tensor losses(int64_t vocab_size) const {
    ops::start_library_functions();
    const Tensor losses = at::where(part.has_target(), (maxima - at_target) + sums.log(), 0.0f);
    const Tensor is_wrong = part.has_target().logical_and((part.targets < 0).logical_or(part.targets >= vocab_size));
    return losses.masked_fill(is_wrong, std::numeric_limits<double>::quiet_NaN());
  }
};

// With `scores` it also finds who reaches a maximum first.
Chunk share_chunk(const ops::LogitsPart& part, bool scores, const TensorRanks& ranks) {
  const auto fp32 = part.logits.options().dtype(at::kFloat);
  const Tensor sums = at::empty({scores ? 3 : 2, part.rows()}, fp32);
  Chunk chunk{part, at::empty({part.rows()}, fp32), sums[0], sums[1], scores ? sums[2] : Tensor()};
  ops::row_maxima_into(part, chunk.maxima);
  const comm::SendsFor purpose(TrafficPurpose::kVocabulary);
  ranks.group->all_reduce(chunk.maxima, comm::Reduction::kMax).wait();
  ops::exp_sums_into(part, chunk.maxima, chunk.sums, chunk.at_target, chunk.earlier);
  ranks.group->all_reduce(sums).wait();
  return chunk;
}

struct Head {
  int64_t first;  // row of the vocabulary
  int64_t vocab_size;
  int64_t chunk_tokens;
  TensorRanks ranks;
  double cap;  // bound of the logits; 0: none
};

// The labels that the ranks draw together: of the largest values of their rows, that of the lowest id.
Tensor shared_labels(const ops::LogitsPart& part, const ops::LabelDraw& draw, int64_t vocab_size,
                     const TensorRanks& ranks) {
  if (!draw.draws) return part.targets;
  const Tensor own = at::empty({part.rows()}, part.logits.options().dtype(at::kFloat)),
               ids = at::empty_like(part.targets);
  ops::draw_labels_into(part, draw, vocab_size, own, ids);
  const Tensor largest = own.clone();
  const comm::SendsFor purpose(TrafficPurpose::kVocabulary);
  ranks.group->all_reduce(largest, comm::Reduction::kMax).wait();
  const Tensor lowest = at::where(own == largest, -ids, -vocab_size);
  ranks.group->all_reduce(lowest, comm::Reduction::kMax).wait();
  return ops::recorded(draw, -lowest);
}

struct VocabularyCrossEntropy : torch::autograd::Function<VocabularyCrossEntropy> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const Tensor& targets,
                        double grad_scale, const Head& head, const ops::LabelDraw& draw) {
    Tensor loss = at::zeros({}, x.options().dtype(at::kDouble));
    const Tensor dx = at::empty_like(x);
    for (int64_t begin = 0; begin < x.size(0); begin += head.chunk_tokens) {
      const int64_t count = std::min(head.chunk_tokens, x.size(0) - begin);
      const Tensor rows = x.narrow(0, begin, count), ids = targets.narrow(0, begin, count);
      const Tensor uncapped = ops::matmul(rows, weight.value, /*transposed=*/true),
                   logits = ops::soft_cap(uncapped, head.cap);
      const Tensor labels = shared_labels({logits, ids, head.first}, draw.from_row(begin), head.vocab_size, head.ranks);
      const Chunk chunk = share_chunk({logits, labels, head.first}, false, head.ranks);
      loss.add_(chunk.losses(head.vocab_size).to(at::kDouble).sum());
      ops::to_softmax_gradient(chunk.part, chunk.maxima, chunk.sums, grad_scale);
      ops::soft_cap_gradient_(logits, uncapped, head.cap);
      ops::matmul_into(dx.narrow(0, begin, count), logits, weight.value, /*transposed=*/false);
      ops::add_outer_product(weight.grad, logits, rows);
    }
    ctx->saved_data["dx"] = dx;
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ops::check_unit_gradient(grads[0]);  // the weight's part was added in forward
    Tensor dx = ctx->saved_data["dx"].toTensor();
    ctx->saved_data.clear();  // the parts may be added in place
    return {std::move(dx), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// Returns the rank's first row, in the form that the loss uses.
Head head_of(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t vocab_size, int64_t chunk_tokens,
             const TensorRanks& ranks, double cap) {
  ATHANOR_ASSERT(chunk_tokens > 0 && x.dim() == 2 && targets.numel() == x.size(0));
  const int64_t first = first_vocabulary_row(vocab_size, ranks.rank(), ranks.size());
  ATHANOR_ASSERT(first + weight.size(0) == first_vocabulary_row(vocab_size, ranks.rank() + 1, ranks.size()));
  ops::check_targets(targets, vocab_size);
  return {first, vocab_size, chunk_tokens, ranks, cap};
}

}  // namespace

int64_t first_vocabulary_row(int64_t vocab_size, int rank, int ranks) { return vocab_size * rank / ranks; }

Tensor vocabulary_embedding(const Tensor& tokens, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks) {
  if (ranks.alone()) return ops::embedding(tokens, weight);
  const int64_t first = first_vocabulary_row(vocab_size, ranks.rank(), ranks.size());
  const Tensor out = ops::partial_embedding(tokens.reshape({-1}) - first, weight);
  return leave_tensor_parallel(out.view({tokens.size(0), tokens.size(1), weight.value.size(1)}), ranks);
}

Tensor vocabulary_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, int64_t vocab_size,
                                double grad_scale, int64_t chunk_tokens, const TensorRanks& ranks,
                                const ops::LabelDraw& draw, double cap) {
  if (ranks.alone()) return ops::linear_cross_entropy(x, weight, targets, grad_scale, chunk_tokens, draw, cap);
  ATHANOR_ASSERT(grad_scale != 0 && weight.grad.defined());
  const Tensor ids = targets.contiguous();
  const Head head = head_of(x, weight.value, ids, vocab_size, chunk_tokens, ranks, cap);
  return VocabularyCrossEntropy::apply(x.contiguous(), weight, ids, grad_scale, head, draw);
}

ops::TokenLosses vocabulary_token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                         int64_t vocab_size, int64_t chunk_tokens, const TensorRanks& ranks,
                                         double cap) {
  if (ranks.alone()) return ops::token_losses(x, weight, targets, chunk_tokens, cap);
  const at::NoGradGuard no_grad;
  const Tensor ids = targets.contiguous();
  const Head head = head_of(x, weight, ids, vocab_size, chunk_tokens, ranks, cap);
  const ops::TokenLosses result{at::empty({x.size(0)}, x.options().dtype(at::kFloat)),
                                at::empty({x.size(0)}, x.options().dtype(at::kBool))};
  for (int64_t begin = 0; begin < x.size(0); begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, x.size(0) - begin);
    const Tensor logits = ops::soft_cap(ops::matmul(x.narrow(0, begin, count), weight, /*transposed=*/true), cap);
    const Chunk chunk = share_chunk({logits, ids.narrow(0, begin, count), head.first}, true, ranks);
    result.loss.narrow(0, begin, count).copy_(chunk.losses(vocab_size));
    const Tensor reaches = (chunk.at_target == chunk.maxima).logical_and(chunk.earlier == 0);
    result.is_greedy.narrow(0, begin, count).copy_(reaches.logical_and(chunk.part.has_target()));
  }
  return result;
}

Tensor vocabulary_logits(const Tensor& x, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks,
                         double cap) {
  const at::NoGradGuard no_grad;
  if (x.size(0) == 0) return at::empty({0, vocab_size}, x.options());
  const Tensor part = ops::soft_cap(ops::linear(x, weight), cap);
  if (ranks.alone()) return part;
  const int ranks_count = ranks.size();
  const int64_t most = (vocab_size + ranks_count - 1) / ranks_count;  // ranks hold ⌊V·r/n⌋ to ⌊V·(r+1)/n⌋
  const Tensor padded = at::zeros({x.size(0), most}, part.options());
  padded.narrow(1, 0, part.size(1)).copy_(part);
  const Tensor all = at::empty({ranks_count, x.size(0), most}, part.options());
  ranks.group->all_gather(all, padded).wait();
  std::vector<Tensor> parts;
  for (int r = 0; r < ranks_count; ++r) {
    const int64_t rows =
        first_vocabulary_row(vocab_size, r + 1, ranks_count) - first_vocabulary_row(vocab_size, r, ranks_count);
    parts.push_back(all[r].narrow(1, 0, rows));
  }
  return at::cat(parts, 1);
}

}  // namespace athanor::inline parallel
