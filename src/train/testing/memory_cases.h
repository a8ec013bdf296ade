#pragma once
// Small models on one rank and on several, and the memory of their steps by the allocator's count, with
// which played steps are compared.

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "train/train_step.h"

namespace athanor::inline train {

inline constexpr int64_t kMemorySeqLen = 128, kMemoryVocab = 512;

inline Batch memory_batch(const RunConfig& config) {
  const CounterRandom random(1, "activations");
  const int64_t sequences = config.train.global_batch_size;
  Batch batch{sequences, kMemorySeqLen, std::vector<int32_t>(static_cast<size_t>(sequences * kMemorySeqLen)), {}, {}};
  for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = static_cast<int32_t>(random.u64(i) % kMemoryVocab);
  return batch;
}

/// A model on one rank.
struct MemoryCase {
  std::string family;
  std::vector<std::string> recompute;
  std::string dtype = "bfloat16";
  size_t path = 0;  ///< the index in tile_paths(), where only one is tried
};

inline void PrintTo(const MemoryCase& of, std::ostream* out) {
  *out << of.family << " " << of.dtype << " [" << join(of.recompute) << "]";
}

struct MemorySize {
  int64_t layers = 4, micro_batch_size = 4;
};

inline RunConfig memory_config(const MemoryCase& of, const MemorySize& size = {}) {
  const std::string& family = of.family;
  RunConfig config;
  config.model.family = family;
  config.model.hidden_size = 256;
  config.model.num_hidden_layers = size.layers;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = family == "olmo" || family == "olmoe" ? 4 : 2;
  config.model.intermediate_size = family == "olmoe" || family == "qwen3_moe" ? 192 : 704;
  if (family == "olmoe" || family == "qwen3_moe") {
    config.model.num_experts = 16;
    config.model.num_experts_per_tok = 4;
    config.model.moe_intermediate_size = family == "olmoe" ? 0 : 192;
  }
  if (family == "deepseek_v2" || family == "deepseek_v3") {
    config.model.num_key_value_heads = 0;
    config.model.num_experts = 16, config.model.num_experts_per_tok = 4, config.model.num_shared_experts = 1;
    config.model.moe_intermediate_size = 192;
    config.model.q_lora_rank = 96, config.model.kv_lora_rank = 64;
    config.model.qk_nope_head_dim = config.model.v_head_dim = 48, config.model.qk_rope_head_dim = 16;
  }
  if (family == "gpt_oss" || family == "m6") {
    config.model.num_experts = 16, config.model.num_experts_per_tok = 4;
    config.model.intermediate_size = 192;
  }
  if (family == "qwen2_moe") {
    config.model.num_experts = 16, config.model.num_experts_per_tok = 4, config.model.num_shared_experts = 1;
    config.model.moe_intermediate_size = 192, config.model.shared_expert_intermediate_size = 320;
  }
  if (family == "gemma2") config.model.attn_logit_softcapping = 50;
  config.model.vocab_size = kMemoryVocab;
  config.data.seq_len = kMemorySeqLen;
  config.train.global_batch_size = 2 * size.micro_batch_size;
  config.train.micro_batch_size = size.micro_batch_size;
  config.train.dtype = of.dtype;
  config.train.loss_chunk_tokens = size.micro_batch_size * kMemorySeqLen / 2;
  config.parallelism.recompute = of.recompute;
  return config;
}

/// Returns the peak bytes of a step beyond those before it.
inline double measured_peak(const RunConfig& config) {
  TrainState state(config, {});
  initialize_parameters(config.model, 1, state.model.parameters);
  const Batch batch = memory_batch(config);
  train_step(state, batch);
  const auto before = ops::cpu_memory().in_use_bytes;
  ops::reset_peak_cpu_memory();
  train_step(state, batch);
  return static_cast<double>(ops::cpu_memory().peak_in_use_bytes - before);
}

/// A model on several ranks.
struct MemoryRanks {
  std::string name;
  bool moe = true;
  int data = 1, expert = 1, tensor = 1, pipeline = 1;
  bool sequence = false;
  std::vector<std::string> recompute = {};
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  std::string sharding = "ep_aware", dispatch = "all_to_all";
  int kv_heads = 8;
  int64_t layers = 4, micro_batch_size = 4;
  int64_t microbatches = pipeline > 1 ? 4 : 2;
  std::string optimizer = "adamw", reduce_dtype = "float32";

  int world() const { return data * tensor * pipeline; }
};
inline void PrintTo(const MemoryRanks& ranks, std::ostream* out) { *out << ranks.name; }

inline RunConfig memory_config(const MemoryRanks& r) {
  RunConfig config;
  config.model.family = r.moe ? "olmoe" : "llama";
  config.model.hidden_size = 256;
  config.model.num_hidden_layers = r.layers;
  config.model.num_attention_heads = 8;
  config.model.num_key_value_heads = r.kv_heads;
  config.model.intermediate_size = r.moe ? 192 : 704;
  if (r.moe) {
    config.model.num_experts = 16;
    config.model.num_experts_per_tok = 4;
    config.moe.balance = "swipe";  // an even share for each expert
  }
  config.model.vocab_size = kMemoryVocab;
  config.data.seq_len = kMemorySeqLen;
  config.train.micro_batch_size = r.micro_batch_size;
  config.train.global_batch_size = r.micro_batch_size * r.data * r.microbatches;
  config.train.loss_chunk_tokens = r.micro_batch_size * kMemorySeqLen / 2;
  config.train.num_threads = 1;
  config.optimizer.name = r.optimizer;
  config.train.reduce_dtype = r.reduce_dtype;
  config.optimizer.hessian_interval = 1;
  config.moe.dispatch = r.dispatch;
  if (r.dispatch == "all_to_all_2d") config.topology.ranks_per_node = 2;
  auto& p = config.parallelism;
  p.data_parallel_shard_degree = r.data;
  p.expert_parallel_degree = r.expert;
  p.tensor_parallel_degree = r.tensor;
  p.pipeline_parallel_degree = r.pipeline;
  p.pipeline_schedule = r.schedule;
  p.virtual_stages = r.virtual_stages;
  p.sequence_parallel = r.sequence;
  p.recompute = r.recompute;
  p.sharding = r.sharding;
  p.bucket_mb = 0.5;
  return config;
}

/// What a rank had at its peak in a step, beyond what it held before, and sent.
struct MeasuredStep {
  double peak = 0;
  std::map<GroupKind, double> sent;
};

/// Measures a step of each rank. Ranks are threads with separate tensors.
inline std::vector<MeasuredStep> measure_ranks(const RunConfig& config, int world_size) {
  std::vector<MeasuredStep> measured(static_cast<size_t>(world_size));
  const Batch batch = memory_batch(config);
  comm::run_ranks(world_size, [&](comm::World& world) {
    at::set_num_threads(1);
    Mesh mesh(Layout(config, world_size), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    train_step(state, batch);
    state.model.gatherer.wait_all();
    for (const auto& [kind, group] : mesh.groups()) group->reset_traffic();
    const auto before = ops::thread_cpu_memory().in_use_bytes;
    ops::reset_peak_thread_cpu_memory();
    train_step(state, batch);
    state.model.gatherer.wait_all();
    MeasuredStep& own = measured[static_cast<size_t>(world.rank())];
    own.peak = static_cast<double>(ops::thread_cpu_memory().peak_in_use_bytes - before);
    for (const auto& [kind, group] : mesh.groups()) own.sent[kind] = static_cast<double>(group->traffic().bytes());
  });
  return measured;
}

/// Layouts of all degrees, schedules, shardings and dispatches, with and without recomputation.
inline const std::vector<MemoryRanks> kMemoryRanks = [] {
  const std::vector<std::string> all = {"norm", "attention", "moe"};
  return std::vector<MemoryRanks>{
      {.name = "data2", .moe = false, .data = 2},
      {.name = "data4_none", .moe = false, .data = 4, .sharding = "none"},
      {.name = "data4_expert2", .data = 4, .expert = 2},
      {.name = "data4_expert4_optimizer", .data = 4, .expert = 4, .sharding = "optimizer"},
      {.name = "expert2_moe_again", .data = 2, .expert = 2, .recompute = {"moe"}},
      {.name = "expert2_allgather", .data = 2, .expert = 2, .dispatch = "allgather"},
      {.name = "tensor2", .moe = false, .tensor = 2},
      {.name = "tensor2_sequence_layer_again", .moe = false, .tensor = 2, .sequence = true, .recompute = {"layer"}},
      {.name = "tensor2_sequence", .moe = false, .tensor = 2, .sequence = true},
      {.name = "tensor4_shared_keys", .moe = false, .tensor = 4, .kv_heads = 2},
      {.name = "moe_tensor2", .tensor = 2},
      {.name = "moe_tensor2_sequence_all_again", .tensor = 2, .sequence = true, .recompute = all},
      {.name = "pipeline2_gpipe", .moe = false, .pipeline = 2, .schedule = "gpipe"},
      {.name = "pipeline2_interleaved", .pipeline = 2, .schedule = "interleaved_1f1b", .virtual_stages = 2},
      {.name = "pipeline4_1f1b_moe_again", .pipeline = 4, .recompute = {"moe"}},
      {.name = "data2_expert2_pipeline2_tensor2", .data = 2, .expert = 2, .tensor = 2, .pipeline = 2},
  };
}();

}  // namespace athanor::inline train
