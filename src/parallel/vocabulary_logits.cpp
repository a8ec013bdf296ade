#include "parallel/vocabulary_logits.h"

#include "ops/linear.h"
#include "parallel/vocabulary.h"

namespace athanor::inline parallel {

Tensor vocabulary_logits(const Tensor& x, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks) {
  const at::NoGradGuard no_grad;
  if (x.size(0) == 0) return at::empty({0, vocab_size}, x.options());
  const Tensor part = ops::linear(x, weight);
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
