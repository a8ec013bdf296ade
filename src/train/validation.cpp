#include "train/validation.h"

#include "train/microbatch.h"

namespace athanor {

double validation_loss(Stage& stage, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id) {
  const int64_t rows = std::min(num_sequences, validation.num_instances());
  Batch batch;
  batch.num_sequences = rows;
  batch.seq_len = validation.seq_len();
  batch.tokens.resize(static_cast<size_t>(rows * batch.seq_len));
  for (int64_t row = 0; row < rows; ++row) validation.read(row, batch.tokens.data() + row * batch.seq_len);
  double loss_sum = 0;
  for (const Microbatch& microbatch : split_batch(batch, config, eos_id)) {
    loss_sum -= stage.score(microbatch.tokens, &microbatch.labels).log_probability.sum(at::kDouble).item<double>();
  }
  return loss_sum / static_cast<double>(rows * (batch.seq_len - 1));
}

}  // namespace athanor
