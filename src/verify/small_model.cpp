#include "verify/small_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_layout.h"
#include "config/checks.h"
#include "config/families.h"
#include "config/precision.h"
#include "config/run_config.h"
#include "config/training_stages.h"
#include "layout/layout_faults.h"
#include "layout/shards.h"
#include "layout/stages.h"
#include "model/decoder.h"
#include "verify/second_backwards.h"

namespace athanor::inline verify {
namespace {

// Selects layers of a model that represent all of them.

constexpr int64_t kLayers = 2;
constexpr int64_t kLongest = 3;  // layers of a stage if its shortest neighbour has one

// What layers of a model may differ in.
struct LayerKind {
  bool sparse, in_window;
  auto operator<=>(const LayerKind&) const = default;
};

LayerKind kind_of(const ModelConfig& model, int64_t layer) {
  return {model.is_sparse_layer(layer), model.window_of(layer) > 0};
}

void take_first_layers(ModelConfig& model) {
  const ModelConfig whole = model;
  std::set<LayerKind> all, taken;
  for (int64_t l = 0; l < whole.num_hidden_layers; ++l) all.insert(kind_of(whole, l));
  int64_t layers = 0;
  while (layers < whole.num_hidden_layers && (layers < kLayers || taken.size() < all.size()))
    taken.insert(kind_of(whole, layers++));
  model.num_hidden_layers = layers;
  for (auto list : {&ModelConfig::mlp_only_layers, &ModelConfig::full_attention_layers})
    std::erase_if(model.*list, [&](int64_t l) { return l >= layers; });
}

// Picks this many layers of a stage, evenly, and one more of each kind that would be left out.
std::vector<LayerKind> pick_kinds(const ModelConfig& model, const StageLayers& stage, int64_t count) {
  std::vector<LayerKind> kinds;
  for (int64_t i = 0; i < count; ++i) kinds.push_back(kind_of(model, stage.first + stage.num_layers() * i / count));
  for (int64_t layer = stage.first; layer < stage.end; ++layer) {
    const LayerKind kind = kind_of(model, layer);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

void take_of_each_stage(ModelConfig& model, ParallelismConfig& parallelism) {
  const auto stages = split_stages(model, parallelism);
  const int64_t shortest = std::ranges::min(stages, {}, &StageLayers::num_layers).num_layers();
  std::vector<int64_t> split, dense, full;
  int64_t layers = 0;
  for (const StageLayers& stage : stages) {
    const int64_t share = (2 * stage.num_layers() + shortest) / (2 * shortest);  // to the nearest
    const auto kinds = pick_kinds(model, stage, std::min(share, kLongest));
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (!kinds[i].sparse) dense.push_back(layers + static_cast<int64_t>(i));
      if (!kinds[i].in_window) full.push_back(layers + static_cast<int64_t>(i));
    }
    split.push_back(static_cast<int64_t>(kinds.size()));
    layers += split.back();
  }
  if (layers >= model.num_hidden_layers) return;
  model.num_hidden_layers = layers;
  if (model.is_moe()) {
    model.decoder_sparse_step = 1;
    model.mlp_only_layers = dense;
  }
  if (model.sliding_window > 0) model.full_attention_layers = full;
  parallelism.pipeline_split = split;
}

// Reduces the number of layers. Without a pipeline it keeps two layers, or the fewest from the first on that have all
// kinds of layers of the model. With a pipeline it keeps of each stage a number in proportion to the stage's
// share of the layers: one of the shortest, at most three. It keeps one more of each of the stage's kinds that this
// would leave out; it writes the result to `parallelism.pipeline_split`. A model that is no longer than that stays as
// it is.
void shrink_layers(ModelConfig& model, ParallelismConfig& parallelism) {
  if (parallelism.pipeline_parallel_degree == 1) {
    take_first_layers(model);
  } else {
    take_of_each_stage(model, parallelism);
  }
}

constexpr int64_t kHeads = 4, kHeadDim = 8, kIntermediate = 24, kSmallVocab = 96, kSmallSeqLen = 16, kManyExperts = 128;
constexpr int64_t kWindow = 5;  // shorter than a sequence
constexpr int64_t kMicrobatches = 2, kHessianInterval = 2;
constexpr double kBucketMb = 0.05;  // 13,000 gradients: a small model has several buckets

// Keeps the number of query heads that a key head serves, if enough heads are left, and which ranks of a tensor group
// share a key head.
void shrink_attention(ModelConfig& model, int64_t tensor_degree) {
  const int64_t given_kv = model.kv_heads(), shared = model.num_attention_heads / given_kv;
  int64_t heads = std::min(model.num_attention_heads, std::lcm(kHeads, tensor_degree)), kv = heads;
  if (given_kv < tensor_degree) {
    kv = given_kv;
  } else if (shared > 1) {
    kv = heads / shared;
    if (heads % shared != 0 || kv % tensor_degree != 0) {
      heads = std::min(model.num_attention_heads, std::max(heads, 2 * tensor_degree));
      kv = std::gcd(heads, tensor_degree);
    }
  }
  if (model.has_latents()) {
    model.q_lora_rank = std::min(model.q_lora_rank, int64_t{12}),
    model.kv_lora_rank = std::min(model.kv_lora_rank, int64_t{10});
    model.qk_nope_head_dim = std::min(model.qk_nope_head_dim, int64_t{4});
    model.qk_rope_head_dim = std::min(model.qk_rope_head_dim, int64_t{4});
    model.v_head_dim = std::min(model.v_head_dim, int64_t{6});
  }
  const bool given_head_dim = model.attention_head_dim > 0;
  const int64_t head_dim = model.head_dim();
  model.num_attention_heads = heads;
  model.num_key_value_heads = kv;
  if (given_head_dim) model.attention_head_dim = kHeadDim;
  model.hidden_size = std::min(model.hidden_size, heads * kHeadDim);
  if (model.query_pre_attn_scalar > 0)  // its ratio to head_dim stays, so that logits keep their size
    model.query_pre_attn_scalar =
        std::max<int64_t>(1, std::llround(static_cast<double>(model.query_pre_attn_scalar) *
                                          static_cast<double>(model.head_dim()) / static_cast<double>(head_dim)));
  // A pair, and not all of them. Half a dim is added, so that it is read back whole (rotated_dims rounds down).
  if (model.partial_rotary_factor < 1) model.partial_rotary_factor = 2.5 / static_cast<double>(model.head_dim());
}

void shrink_experts(ModelConfig& model, int64_t expert_degree) {
  if (model.num_experts <= kManyExperts) return;
  const int64_t needed = std::max(2 * model.num_experts_per_tok, kManyExperts / 2);
  model.num_experts = std::lcm(expert_degree, std::gcd(model.num_experts, int64_t{2}));
  if (model.n_group > 0) model.num_experts = std::lcm(model.num_experts, model.n_group);
  const int64_t unit = model.num_experts;
  const auto has_too_few = [&] {
    return model.num_experts < needed ||
           (model.n_group > 0 && model.topk_group * (model.num_experts / model.n_group) < model.num_experts_per_tok);
  };
  while (has_too_few()) model.num_experts += unit;
}

// The tensor degree divides the small vocabulary if it divides the whole one.
int64_t shrink_vocabulary(int64_t size, int64_t tensor_degree) {
  const int64_t even = std::lcm(kSmallVocab, tensor_degree);
  return std::min(size, size % tensor_degree == 0 ? even : even + 1);
}

ModelConfig shrink_model(ModelConfig model, ParallelismConfig& p, bool keep_depth) {
  const int64_t width = model.hidden_size;
  if (!keep_depth) shrink_layers(model, p);
  shrink_attention(model, p.tensor_parallel_degree);
  shrink_experts(model, p.expert_parallel_degree);
  const int64_t cut = std::lcm(int64_t{8}, p.tensor_parallel_degree);
  model.intermediate_size = std::min(model.intermediate_size, kIntermediate / 8 * cut);
  if (model.moe_intermediate_size > 0) {
    model.moe_intermediate_size = std::min(model.moe_intermediate_size, kIntermediate / 8 * cut);
  }
  if (model.shared_expert_intermediate_size > 0)
    model.shared_expert_intermediate_size =
        std::min(model.shared_expert_intermediate_size, kIntermediate / 8 * cut * 2 / 3);
  if (model.sliding_window > 0) model.sliding_window = std::min(model.sliding_window, kWindow);
  model.vocab_size = shrink_vocabulary(model.vocab_size, p.tensor_parallel_degree);
  // So a product of `width` terms keeps its size.
  model.initializer_range *= std::sqrt(static_cast<double>(width) / static_cast<double>(model.hidden_size));
  return model;
}

// Keeps the ratio of base_width and hidden_size, whose effect on the initial weights initializer_range has already.
int64_t narrowed(int64_t base_width, const ModelConfig& whole, const ModelConfig& small) {
  if (base_width == 0) return 0;
  return std::max<int64_t>(1, base_width * small.hidden_size / whole.hidden_size);
}

// Two, or as many as a schedule needs so that a rank alternates forward and backward; no more than were asked for.
int64_t count_microbatches(const ParallelismConfig& p, int64_t given) {
  const int64_t ranks = p.pipeline_parallel_degree;
  if (ranks == 1) return kMicrobatches;
  const int64_t enough = p.pipeline_schedule == PipelineSchedule::kInterleaved1F1B ? 2 * ranks : ranks + 1;
  return std::max(kMicrobatches, std::min(enough, given));
}

// Balance groups keep their extent: within a microbatch, or over as many ranks as before.
void shrink_batch(RunConfig& config, const Layout& layout) {
  TrainConfig& train = config.train;
  int64_t& group = config.moe.balance_group;
  const bool balanced = config.moe.balance != Balance::kNone;
  if (balanced && group > train.micro_batch_size) {
    group /= train.micro_batch_size;
    train.micro_batch_size = 1;
  } else {
    const int64_t groups = balanced ? train.micro_batch_size / std::max<int64_t>(1, group) : train.micro_batch_size;
    if (balanced) group = std::min<int64_t>(group, 2);
    train.micro_batch_size = balanced ? group * std::min<int64_t>(groups, 2) : std::min<int64_t>(groups, 2);
  }
  train.global_batch_size =
      layout.data() * train.micro_batch_size * count_microbatches(config.parallelism, layout.microbatches());
}

// The shortest length that moe.balance and sequence_parallel allow.
void choose_seq_len(RunConfig& config) {
  const ParallelismConfig& p = config.parallelism;
  const int64_t unit = p.sequence_parallel ? p.tensor_parallel_degree : 1, most = config.model.max_position_embeddings,
                longest = config.data.seq_len > 0 ? std::min(config.data.seq_len, most) : most;
  for (config.data.seq_len = std::min(kSmallSeqLen, longest); config.data.seq_len < longest; ++config.data.seq_len) {
    if (config.data.seq_len % unit == 0 && find_balance_contradictions(config).empty()) return;
  }
}

void leave_only_steps(RunConfig& config, int64_t steps) {
  config.train.stages.clear();
  config.train.batch_ramp.clear();
  config.train.steps = steps;
  config.train.validation_interval = 0;
  config.optimizer.schedule = LrSchedule::kConstant;
  config.optimizer.min_lr = config.optimizer.lr;
  config.optimizer.warmup_steps = config.optimizer.schedule_steps = 0;
  config.optimizer.schedule_tokens = config.optimizer.warmup_tokens = config.optimizer.decay_tokens = 0;
  // Three steps have two second backwards, and one step without.
  if (has_second_backward(config, 1))
    config.optimizer.hessian_interval = std::min(config.optimizer.hessian_interval, kHessianInterval);
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
  if (!small.model.from.empty())
    small.model = has_weights(small.model.from)
                      ? HfFolder::open(small.model.from).model()
                      : read_hf_config(std::filesystem::path(small.model.from) / kHfConfigName).model;
  const Layout layout(small, world_size);
  leave_only_steps(small, options.steps);
  small.train.dtype = options.dtype;
  if (is_measured(small)) prepare_measured_run(small);
  if (!options.keep_size) {
    const RunConfig whole = small;
    small.model = shrink_model(small.model, small.parallelism, options.keep_depth);
    small.optimizer.base_width = narrowed(small.optimizer.base_width, whole.model, small.model);
    shrink_batch(small, layout);
    choose_seq_len(small);
    small.parallelism.bucket_mb = options.keep_depth ? bucket_mb_for_as_many(small, whole, layout)
                                                     : std::min(whole.parallelism.bucket_mb, kBucketMb);
  } else if (small.data.seq_len == 0) {
    choose_seq_len(small);
  }
  const bool pooled_apart =
      small.moe.aux_scope == AuxScope::kTransformers && small.model.is_moe() && count_balance_ranks(small) > 1;
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
  one.train.device = DeviceKind::kCpu;
  one.train.cuda_graphs = false;
  ParallelismConfig& p = one.parallelism;
  p.data_parallel_replicate_degree = p.data_parallel_shard_degree = p.expert_parallel_degree = 1;
  p.tensor_parallel_degree = p.pipeline_parallel_degree = p.virtual_stages = 1;
  p.pipeline_split.clear();
  p.sequence_parallel = false;
  p.mapping = ParallelismConfig{}.mapping;
  one.topology = {};
  p.pipeline_schedule = ParallelismConfig{}.pipeline_schedule;
  if (one.moe.balance != Balance::kNone)
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
    // The square concentrates on low ids: some tokens occur in every rank's sequences, some in one rank's, some in
    // none.
    const double x = random.uniform(static_cast<uint64_t>(step) * batch.tokens.size() + i);
    batch.tokens[i] = static_cast<int32_t>(x * x * vocab);
  }
  return batch;
}

namespace {

RunConfig with_bucket_elements(RunConfig config, int64_t elements) {
  // Adds half an element, so that the size is read back whole (bucket_elements rounds down).
  config.parallelism.bucket_mb = (static_cast<double>(elements) + 0.5) * sizeof(float) / 1e6;
  return config;
}

}  // namespace

int64_t count_buckets(const RunConfig& config, const Layout& layout) {
  std::set<int> seen;  // pipeline ranks
  size_t most = 0;
  for (int rank = 0; rank < layout.world_size() && std::cmp_less(seen.size(), layout.pipeline()); ++rank) {
    if (!seen.insert(layout.coordinate(rank, Axis::kPipeline)).second) continue;
    auto entries = make_bucket_entries(held_parameters(config.model, config.parallelism, layout, rank));
    most = std::max(most, lay_out_buckets(entries, {.bucket_elements = bucket_elements(config)}).size());
  }
  return static_cast<int64_t>(most);
}

double bucket_mb_for_as_many(const RunConfig& small, const RunConfig& whole, const Layout& layout) {
  const int64_t wanted = count_buckets(whole, layout);
  // Smaller buckets are never fewer. This finds the largest that are enough; with one element, each parameter has a
  // bucket.
  int64_t enough = 1, too_large = 64 * count_parameters(small.model);  // with all padding, no bucket has more
  while (too_large - enough > 1) {
    const int64_t middle = enough + (too_large - enough) / 2;
    (count_buckets(with_bucket_elements(small, middle), layout) >= wanted ? enough : too_large) = middle;
  }
  return with_bucket_elements(small, enough).parallelism.bucket_mb;
}

bool is_measured(const RunConfig& small) { return precision_of(small).rounds_weights(); }

void prepare_measured_run(RunConfig& small) {
  constexpr double kClipsNothing = 1e3;  // in a small model, queries, keys and values are of size 1
  small.moe.router_noise = std::numeric_limits<double>::infinity();
  if (small.model.clip_qkv > 0) small.model.clip_qkv = std::max(small.model.clip_qkv, kClipsNothing);
}

RunConfig make_truth_run(const RunConfig& one) {
  RunConfig truth = one;
  truth.train.dtype = truth.train.reduce_dtype = name_of(NumberType::kFloat32);
  return truth;
}

}  // namespace athanor::inline verify
