#pragma once
// For tests: a small sparse model, and the degrees of a layout for it.

#include <fmt/core.h>

#include <string>

#include "config/run_config.h"

namespace athanor::inline parallel {

struct Degrees {
  int replicate, shard, expert;
  const char* sharding;
  int tensor = 1, pipeline = 1;

  int world() const { return replicate * shard * tensor * pipeline; }
  std::string text() const {
    return fmt::format("{} {} x {}, expert {}, tensor {}, pipeline {}", sharding, replicate, shard, expert, tensor,
                       pipeline);
  }
};

inline void set_degrees(RunConfig& config, const Degrees& degrees) {
  auto& p = config.parallelism;
  p.data_parallel_replicate_degree = degrees.replicate;
  p.data_parallel_shard_degree = degrees.shard;
  p.expert_parallel_degree = degrees.expert;
  p.sharding = degrees.sharding;
  p.tensor_parallel_degree = degrees.tensor;
  p.pipeline_parallel_degree = degrees.pipeline;
}

/// Returns the configuration of an OLMoE of three layers and twelve sequences a step on a layout.
inline RunConfig small_run(const Degrees& degrees, int64_t vocab_size, const std::string& dtype) {
  RunConfig c;
  c.model.family = "olmoe";
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = 3;
  c.model.num_attention_heads = 4;
  c.model.num_key_value_heads = 2;  // fewer than tensor ranks in some layouts
  c.model.intermediate_size = 16;
  c.model.num_experts = 4;
  c.model.num_experts_per_tok = 2;
  c.model.vocab_size = vocab_size;
  c.train.dtype = dtype;
  c.train.global_batch_size = 12;
  c.train.micro_batch_size = 1;
  set_degrees(c, degrees);
  return c;
}

}  // namespace athanor::inline parallel
