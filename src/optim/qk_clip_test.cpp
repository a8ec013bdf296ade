// QK-clip on layouts: the query and key weights of the heads whose logits exceed the threshold are scaled, and nothing
// else changes.

#include "optim/qk_clip.h"

#include <gtest/gtest.h>

#include "layout/stages.h"
#include "optim/testing/optimized_ranks.h"

namespace athanor::qk_clip_test {
namespace {

constexpr double kThreshold = 10;

// The largest logit of a head of the model, of which half are above the threshold.
float logit_of(int64_t layer, int64_t head) { return static_cast<float>(5 + 3 * ((layer + 2 * head) % 5)); }

double factor_of(int64_t layer, int64_t head) { return std::min(1.0, kThreshold / double{logit_of(layer, head)}); }

RunConfig dense_config(const Degrees& degrees, int64_t kv_heads, const std::string& dtype) {
  RunConfig config = small_run(degrees, 62, dtype);
  config.model.family = "llama";
  config.model.num_experts = config.model.num_experts_per_tok = 0;
  config.model.num_key_value_heads = kv_heads;
  return config;
}

// What an element of a parameter is multiplied by.
double expected_factor(const RunConfig& config, const BucketEntry& entry, int64_t global) {
  const bool shares = config.model.num_key_value_heads != config.model.num_attention_heads;
  const bool is_query = entry.role == Role::kQuery, is_key = entry.role == Role::kKey;
  if (!is_query && !(is_key && !shares)) return 1;
  const double gamma = factor_of(entry.layer, global / (config.model.head_dim() * entry.global_shape[1]));
  return shares ? gamma : std::sqrt(gamma);
}

// The largest logit of the model, of several layers the first that has it, and the heads above the threshold.
LargestLogit expected_largest(const ModelConfig& model) {
  LargestLogit largest{-1e9, 0, 0};
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    for (int64_t head = 0; head < model.num_attention_heads; ++head) {
      const double logit{logit_of(layer, head)};
      if (logit > largest.value) largest.value = logit, largest.layer = layer;
      if (logit > kThreshold) ++largest.clipped_heads;
    }
  }
  return largest;
}

// The layers of the rank's stages, in which it sees logits.
std::vector<int64_t> layers_of(const RunConfig& config, const Mesh& mesh) {
  std::vector<int64_t> layers;
  const int stage = mesh.layout().coordinate(mesh.rank(), Axis::kPipeline);
  for (const StageLayers& part : stages_of(config.model, config.parallelism, stage))
    for (int64_t layer = part.first; layer < part.end; ++layer) layers.push_back(layer);
  return layers;
}

void check_rank(const RunConfig& config, comm::World& world) {
  const Mesh mesh(Layout(config, world.size()), world);
  const ShardPlan plan(mesh, config.parallelism.sharding);
  ParameterStore store(
      make_bucket_entries(held_parameters(config.model, config.parallelism, mesh.layout(), mesh.rank())),
      config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat, ParameterStore::Use::kTraining,
      plan.sharding(1000));
  for (const BucketEntry& entry : store.table())
    store.fill_master(entry.name, [](int64_t, std::span<float> out) { std::ranges::fill(out, 1.5f); });
  QkClip clip(config.model, kThreshold, store, plan);
  clip.begin_gradients();
  const int64_t heads = config.model.num_attention_heads / mesh.layout().tensor(),
                first = heads * mesh.layout().index_in_group(GroupKind::kTensor, mesh.rank());
  // One data rank has the largest logits, each in another sequence.
  for (const int64_t layer : layers_of(config, mesh)) {
    const Tensor logits = at::full({2, heads}, -3.0f);
    if (mesh.data_rank() == mesh.layout().data() - 1) {
      for (int64_t h = 0; h < heads; ++h) logits[h % 2][h] = logit_of(layer, first + h);
    }
    clip.observe({fmt::format("model.layers.{}.logits", layer), Observation::Phase::kForward, 0, logits});
  }
  clip.begin();
  const LargestLogit found = largest_logit_of(clip.numbers());
  if (found != expected_largest(config.model))
    throw std::runtime_error(
        fmt::format("largest logit {} in layer {}, {} heads", found.value, found.layer, found.clipped_heads));
  for (const Bucket& bucket : store.buckets()) clip.apply(bucket.range, {});
  for (const Bucket& bucket : store.buckets()) {
    for_each_element(store, plan.owned(bucket), [&](const BucketEntry& entry, int64_t flat, int64_t global) {
      float value = 0;
      store.read_master(flat, {&value, 1});
      // The factor has two roundings, the product one, and a stored master may be an ulp away.
      const double expected = 1.5 * expected_factor(config, entry, global);
      if (std::abs(value - expected) > 5 * kUnit * 1.5)
        throw std::runtime_error(fmt::format("{} element {}: {}, expected {}", entry.name, global, value, expected));
    });
  }
}

TEST(QkClip, ScalesTheHeadsAboveTheThresholdOnEveryLayoutAndEveryRankKnowsTheLargestLogit) {
  const std::vector<Degrees> layouts = {{1, 1, 1, "none"},         {1, 2, 1, "optimizer"},
                                        {2, 2, 1, "hierarchical"}, {1, 2, 1, "ep_aware", 2, 1},
                                        {1, 1, 1, "none", 4, 1},   {1, 2, 1, "optimizer", 2, 3}};
  for (const Degrees& degrees : layouts) {
    for (const int64_t kv_heads : {4, 2}) {
      for (const char* dtype : {"float32", "bfloat16"}) {
        SCOPED_TRACE(fmt::format("{}, {} key heads, {}", degrees.text(), kv_heads, dtype));
        const RunConfig config = dense_config(degrees, kv_heads, dtype);
        comm::run_ranks(degrees.world(), [&](comm::World& world) { check_rank(config, world); });
      }
    }
  }
}

}  // namespace
}  // namespace athanor::qk_clip_test
