#include "train/verify/small_model.h"

#include <cmath>
#include <numeric>

#include "arch/layout_faults.h"
#include "base/random.h"
#include "base/text.h"
#include "checkpoint/hf_import.h"
#include "config/checks.h"
#include "config/families.h"
#include "config/training_stages.h"

namespace athanor {
namespace {

constexpr int64_t kHeads = 4, kHeadDim = 8, kIntermediate = 24, kVocab = 96, kSeqLen = 16, kManyExperts = 128;
constexpr int64_t kMicrobatches = 2;
constexpr double kBucketMb = 0.05;  // of 13,000 gradients: a small model has several

bool has_dense_layer(const ModelConfig& model) { return model.num_sparse_layers() < model.num_hidden_layers; }

// Two layers, or the fewest that have both kinds where the model has both.
void shrink_layers(ModelConfig& model, int64_t at_least) {
  const ModelConfig whole = model;
  const bool both = whole.is_moe() && has_dense_layer(whole) && whole.num_sparse_layers() > 0;
  for (int64_t layers = std::min(whole.num_hidden_layers, at_least); layers < whole.num_hidden_layers; ++layers) {
    model.num_hidden_layers = layers;
    std::erase_if(model.mlp_only_layers = whole.mlp_only_layers, [&](int64_t l) { return l >= layers; });
    const bool sparse = !whole.is_moe() || whole.num_sparse_layers() == 0 || model.num_sparse_layers() > 0;
    if (sparse && (!both || has_dense_layer(model))) return;
  }
  model = whole;
}

// Query heads that a key head serves, where so many heads are left.
void shrink_attention(ModelConfig& model, int64_t tensor_degree) {
  const int64_t shared = model.num_attention_heads / std::max<int64_t>(1, model.kv_heads());
  const int64_t heads = std::min(model.num_attention_heads, std::lcm(kHeads, tensor_degree));
  const bool given_head_dim = model.attention_head_dim > 0;
  model.num_attention_heads = heads;
  model.num_key_value_heads =
      heads % shared == 0 && (heads / shared) % tensor_degree == 0 ? heads / shared : std::gcd(heads, tensor_degree);
  if (shared == 1) model.num_key_value_heads = heads;
  if (given_head_dim) model.attention_head_dim = kHeadDim;
  model.hidden_size = std::min(model.hidden_size, heads * kHeadDim);
}

void shrink_experts(ModelConfig& model, int64_t expert_degree) {
  if (model.num_experts <= kManyExperts) return;
  const int64_t needed = std::max(2 * model.num_experts_per_tok, kManyExperts / 2);
  model.num_experts = std::lcm(expert_degree, std::gcd(model.num_experts, int64_t{2}));
  const int64_t unit = model.num_experts;
  while (model.num_experts < needed) model.num_experts += unit;
}

ModelConfig shrink_model(ModelConfig model, const ParallelismConfig& p) {
  const int64_t width = model.hidden_size;
  shrink_layers(model, std::max<int64_t>(2, p.pipeline_parallel_degree * p.virtual_stages));
  shrink_attention(model, p.tensor_parallel_degree);
  shrink_experts(model, p.expert_parallel_degree);
  const int64_t cut = std::lcm(int64_t{8}, p.tensor_parallel_degree);
  model.intermediate_size = std::min(model.intermediate_size, kIntermediate / 8 * cut);
  if (model.moe_intermediate_size > 0) {
    model.moe_intermediate_size = std::min(model.moe_intermediate_size, kIntermediate / 8 * cut);
  }
  model.vocab_size = std::min(model.vocab_size, std::lcm(kVocab, p.tensor_parallel_degree));
  // A product of `width` terms has the size it had.
  model.initializer_range *= std::sqrt(static_cast<double>(width) / static_cast<double>(model.hidden_size));
  return model;
}

// Balance groups keep their place: within a microbatch, or over as many ranks as they span.
void shrink_batch(RunConfig& config, int64_t data_ranks) {
  TrainConfig& train = config.train;
  int64_t& group = config.moe.balance_group;
  const bool balanced = config.moe.balance != "none";
  if (balanced && group > train.micro_batch_size) {
    group /= train.micro_batch_size;
    train.micro_batch_size = 1;
  } else {
    const int64_t groups = balanced ? train.micro_batch_size / std::max<int64_t>(1, group) : train.micro_batch_size;
    if (balanced) group = std::min<int64_t>(group, 2);
    train.micro_batch_size = balanced ? group * std::min<int64_t>(groups, 2) : std::min<int64_t>(groups, 2);
  }
  train.global_batch_size = data_ranks * train.micro_batch_size * kMicrobatches;
}

// The shortest that moe.balance allows.
void choose_seq_len(RunConfig& config) {
  const int64_t longest = std::max<int64_t>(kSeqLen, config.data.seq_len);
  for (config.data.seq_len = kSeqLen; config.data.seq_len < longest; ++config.data.seq_len) {
    if (find_balance_contradictions(config).empty()) return;
  }
}

void leave_only_steps(RunConfig& config, int64_t steps) {
  config.train.stages.clear();
  config.train.steps = steps;
  config.train.validation_interval = 0;
  config.optimizer.schedule = "constant";
  config.optimizer.min_lr = config.optimizer.lr;
  config.optimizer.warmup_steps = 0;
  config.checkpoint = {};
  config.checkpoint.interval = config.checkpoint.model_interval = 0;
  config.metrics = {};
  config.metrics.tensorboard = false;
  config.data.sources.clear();
  config.data.path = "made from counters";
}

}  // namespace

RunConfig make_small_run(const RunConfig& config, int world_size, const VerifyOptions& options) {
  RunConfig small = training_stages(config).front().config;
  if (!small.model.from.empty()) small.model = HfFolder::open(small.model.from).model();
  const Layout layout(small, world_size);
  leave_only_steps(small, options.steps);
  small.train.dtype = options.dtype;
  if (!options.keep_size) {
    small.model = shrink_model(small.model, small.parallelism);
    shrink_batch(small, layout.data());
    small.data.seq_len = std::min(std::max<int64_t>(small.data.seq_len, kSeqLen), small.model.max_position_embeddings);
    choose_seq_len(small);
    small.parallelism.bucket_mb = std::min(small.parallelism.bucket_mb, kBucketMb);
  } else if (small.data.seq_len == 0) {
    small.data.seq_len = std::min(kSeqLen, small.model.max_position_embeddings);
  }
  const bool pooled_apart =
      small.moe.aux_scope == "transformers" && small.model.is_moe() && count_balance_ranks(small) > 1;
  ATHANOR_CHECK(
      !pooled_apart,
      "moe.aux_scope \"transformers\" pools over the microbatch of a rank, and moe.balance_group spans {} of "
      "them: one rank, which has a whole group in a microbatch, computes another loss; set it to \"sequence\"",
      count_balance_ranks(small));
  const auto problems = find_contradictions(small);
  ATHANOR_CHECK(problems.empty(), "the small model of this configuration cannot be built ({}); try --keep-size",
                join(problems, "; "));
  return small;
}

RunConfig make_reference_run(const RunConfig& small) {
  RunConfig one = small;
  ParallelismConfig& p = one.parallelism;
  p.data_parallel_replicate_degree = p.data_parallel_shard_degree = p.expert_parallel_degree = 1;
  p.tensor_parallel_degree = p.pipeline_parallel_degree = p.virtual_stages = 1;
  p.mapping = ParallelismConfig{}.mapping;
  one.topology = {};
  p.pipeline_schedule = ParallelismConfig{}.pipeline_schedule;
  if (one.moe.balance != "none")
    one.train.micro_batch_size = std::max(one.train.micro_batch_size, one.moe.balance_group);
  return one;
}

Batch make_verify_batch(const RunConfig& small, int64_t step, uint64_t draw) {
  const CounterRandom random(draw, "verify");
  Batch batch;
  batch.num_sequences = small.train.global_batch_size;
  batch.seq_len = small.data.seq_len;
  batch.tokens.resize(static_cast<size_t>(batch.num_sequences * batch.seq_len));
  const double vocab = static_cast<double>(small.model.vocab_size);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    // The square crowds low ids: some tokens stand in every rank's sequences, some in one, some in none.
    const double x = random.uniform(static_cast<uint64_t>(step) * batch.tokens.size() + i);
    batch.tokens[i] = static_cast<int32_t>(x * x * vocab);
  }
  return batch;
}

}  // namespace athanor
