#include "bench/random_batch.h"

#include <ATen/ATen.h>

namespace athanor::bench {

Batch random_batch(const RunConfig& config) {
  Batch batch;
  batch.num_sequences = config.train.global_batch_size;
  batch.seq_len = config.data.seq_len;
  const at::Tensor tokens =
      at::randint(config.model.vocab_size, {batch.num_sequences * batch.seq_len}, at::TensorOptions(at::kInt));
  batch.tokens.assign(tokens.const_data_ptr<int32_t>(), tokens.const_data_ptr<int32_t>() + tokens.numel());
  return batch;
}

}  // namespace athanor::bench
