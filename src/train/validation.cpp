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

double validation_loss(Stage& stage, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id, comm::Communicator& ranks) {
  const int64_t rows = std::min(num_sequences, validation.num_instances());
  const auto microbatches = split_batch(first_rows(validation, rows), config, eos_id);
  const auto size = static_cast<size_t>(ranks.size()), rank = static_cast<size_t>(ranks.rank());
  double loss_sum = 0;
  for (size_t round = 0; round < microbatches.size(); round += size) {
    // Whose turn finds none left scores the first again, for the experts that it has for others.
    const bool counts = round + rank < microbatches.size();
    const Microbatch& microbatch = microbatches[counts ? round + rank : 0];
    const double loss =
        -stage.score(microbatch.tokens, &microbatch.labels).log_probability.sum(at::kDouble).item<double>();
    if (counts) loss_sum += loss;
  }
  const Tensor all = at::full({1}, loss_sum, at::kDouble);
  ranks.all_reduce(all).wait();
  return all.item<double>() / static_cast<double>(rows * (validation.seq_len() - 1));
}

}  // namespace athanor
