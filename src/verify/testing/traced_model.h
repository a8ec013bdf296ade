#pragma once
// For tests of verify: a small sparse model whose runs are traced, with steps of 12 sequences of 12 tokens.

#include "config/run_config.h"

namespace athanor::inline verify {

inline RunConfig traced_model(int64_t micro_batch_size) {
  RunConfig c;
  c.model.hidden_size = 24;
  c.model.num_hidden_layers = 2;
  c.model.num_attention_heads = 3;
  c.model.intermediate_size = 20;
  c.model.num_experts = 6;
  c.model.num_experts_per_tok = 2;
  c.model.vocab_size = 60;
  c.model.initializer_range = 0.1;
  c.data.seq_len = 12;
  c.train.global_batch_size = 12;
  c.train.micro_batch_size = micro_batch_size;
  return c;
}

}  // namespace athanor::inline verify
