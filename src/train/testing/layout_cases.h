#pragma once
// Layouts of every kind for a small sparse model, for tests of what must hold in each of them.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline train {

/// The degrees of a small model's layout; the other members are settings that change the dataflow.
struct LayoutCase {
  const char* name;
  int data = 1, tensor = 1, pipeline = 1, expert = 1;
  std::string dispatch = "all_to_all", dtype = "float32";
  bool sequence = false;
  std::vector<std::string> recompute = {};

  int ranks() const { return data * tensor * pipeline; }
};

/// Returns a sparse model of three layers in this layout; each data rank has three microbatches of a sequence.
inline RunConfig config_with(const LayoutCase& d) {
  RunConfig c;
  c.model.family = "olmoe";
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = 3;
  c.model.num_attention_heads = 4;
  c.model.intermediate_size = 16;
  c.model.num_experts = 4;
  c.model.num_experts_per_tok = 2;
  c.model.vocab_size = 64;
  c.data.seq_len = 8;
  c.train.dtype = d.dtype;
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = 3 * d.data;
  c.train.steps = 10;
  c.optimizer.warmup_steps = 1;
  c.moe.dispatch = d.dispatch;
  c.moe.dispatch_chunks = 3;
  c.parallelism.data_parallel_shard_degree = d.data;
  c.parallelism.tensor_parallel_degree = d.tensor;
  c.parallelism.pipeline_parallel_degree = d.pipeline;
  c.parallelism.expert_parallel_degree = d.expert;
  c.parallelism.sequence_parallel = d.sequence;
  c.parallelism.recompute = d.recompute;
  c.parallelism.bucket_mb = 0.004;
  return c;
}

/// Every axis alone, and all at once.
inline const std::vector<LayoutCase> kLayoutCases = {
    {.name = "one rank"},
    {.name = "data", .data = 3},
    {.name = "tensor", .tensor = 2},
    {.name = "tensor, 16 bits", .tensor = 2, .dtype = "bfloat16"},
    {.name = "sequence", .tensor = 2, .sequence = true},
    {.name = "pipeline", .pipeline = 3},
    {.name = "experts, all-to-all", .data = 4, .expert = 4},
    {.name = "experts, all-gather", .data = 2, .expert = 2, .dispatch = "allgather"},
    {.name = "recomputed", .data = 2, .tensor = 2, .expert = 2, .recompute = {"attention", "moe"}},
    {.name = "whole layers recomputed", .data = 2, .expert = 2, .recompute = {"layer"}},
    {.name = "all", .data = 2, .tensor = 2, .pipeline = 2, .expert = 2, .sequence = true},
};

}  // namespace athanor::inline train
