#include "train/validation.h"

#include "train/microbatch.h"

namespace athanor {

namespace {

Batch first_rows(const Dataset& validation, int64_t rows) {
  Batch batch;
  batch.num_sequences = rows;
  batch.seq_len = validation.seq_len();
  batch.tokens.resize(static_cast<size_t>(rows * batch.seq_len));
  for (int64_t row = 0; row < rows; ++row) validation.read(row, batch.tokens.data() + row * batch.seq_len);
  return batch;
}

}  // namespace

double validation_loss(Pipeline& pipeline, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id, const Mesh& mesh) {
  const int64_t rows = std::min(num_sequences, validation.num_instances());
  const auto all = split_batch(first_rows(validation, rows), config, eos_id);
  const auto size = static_cast<size_t>(mesh.layout().data()), rank = static_cast<size_t>(mesh.data_rank());
  std::vector<Microbatch> own;
  size_t counted = 0;
  for (size_t round = 0; round < all.size(); round += size) {
    // Whose turn finds none left scores the first again, for the experts that it has for others.
    const bool counts = round + rank < all.size();
    own.push_back(all[counts ? round + rank : 0]);
    counted += counts;
  }
  const auto scores = pipeline.score(own);  // empty but for the last stage's rank
  double loss_sum = 0;
  for (size_t i = 0; i < std::min(counted, scores.size()); ++i)
    loss_sum -= scores[i].log_probability.sum(at::kDouble).item<double>();
  const Tensor sum = at::full({1}, loss_sum, at::kDouble);
  mesh.group(GroupKind::kPipeline).all_reduce(sum).wait();
  mesh.group(GroupKind::kData).all_reduce(sum).wait();
  return sum.item<double>() / static_cast<double>(rows * (validation.seq_len() - 1));
}

}  // namespace athanor
