#pragma once
// Shared by the tests that train on the device that the host plays: a small model of each family.

#include <ATen/ATen.h>

#include <cstring>

#include "config/run_config.h"
#include "guarded/device.h"

namespace athanor::inline train {

// Autograd starts a thread for each device that exists when it is first used.
inline const bool kGuardedIsInstalled = (guarded::install_for_tests(), true);

inline RunConfig small_device_run(const std::string& family, const std::string& dtype) {
  RunConfig c;
  c.model.family = family;
  c.model.hidden_size = 64;
  c.model.num_hidden_layers = 2;
  c.model.num_attention_heads = 4;
  c.model.num_key_value_heads = family == "olmo" || family == "olmoe" ? 4 : 2;
  c.model.intermediate_size = 48;
  c.model.vocab_size = 128;
  const bool sparse = family == "olmoe" || family == "qwen3_moe";
  c.model.num_experts = sparse ? 8 : 0;
  c.model.num_experts_per_tok = sparse ? 2 : 0;
  if (family == "olmo3") {  // a layer of each kind
    c.model.sliding_window = 9;
    c.model.full_attention_layers = {1};
  }
  c.data.seq_len = 32;
  c.train.dtype = dtype;
  c.train.steps = 20;
  c.train.global_batch_size = 4;
  c.train.micro_batch_size = 2;
  c.optimizer.warmup_steps = 2;
  c.optimizer.schedule = "constant";
  return c;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

}  // namespace athanor::inline train
