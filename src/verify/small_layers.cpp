#include "verify/small_layers.h"

#include <algorithm>

#include "layout/stages.h"

namespace athanor::inline verify {
namespace {

constexpr int64_t kLayers = 2;
constexpr int64_t kLongest = 3;  // layers of a stage if its shortest neighbour has one

bool has_both_kinds(const ModelConfig& model) {
  return model.is_moe() && model.num_sparse_layers() > 0 && model.num_sparse_layers() < model.num_hidden_layers;
}

void take_first_layers(ModelConfig& model) {
  const ModelConfig whole = model;
  const bool both = has_both_kinds(whole);
  for (int64_t layers = std::min(whole.num_hidden_layers, kLayers); layers < whole.num_hidden_layers; ++layers) {
    model.num_hidden_layers = layers;
    std::erase_if(model.mlp_only_layers = whole.mlp_only_layers, [&](int64_t l) { return l >= layers; });
    const bool sparse = !whole.is_moe() || whole.num_sparse_layers() == 0 || model.num_sparse_layers() > 0;
    if (sparse && (!both || has_both_kinds(model))) return;
  }
  model = whole;
}

// Picks this many layers of a stage, evenly, and one more if a kind would be left out; true means a layer with experts.
std::vector<bool> pick_kinds(const ModelConfig& model, const StageLayers& stage, int64_t count) {
  std::vector<bool> kinds;
  for (int64_t i = 0; i < count; ++i)
    kinds.push_back(model.is_sparse_layer(stage.first + stage.num_layers() * i / count));
  for (int64_t layer = stage.first; layer < stage.end; ++layer) {
    const bool sparse = model.is_sparse_layer(layer);
    if (std::ranges::find(kinds, sparse) == kinds.end()) kinds.push_back(sparse);
  }
  return kinds;
}

void take_of_each_stage(ModelConfig& model, ParallelismConfig& parallelism) {
  const auto stages = split_stages(model, parallelism);
  const int64_t shortest = std::ranges::min(stages, {}, &StageLayers::num_layers).num_layers();
  std::vector<int64_t> split, dense;
  int64_t layers = 0;
  for (const StageLayers& stage : stages) {
    const int64_t share = (2 * stage.num_layers() + shortest) / (2 * shortest);  // to the nearest
    const auto kinds = pick_kinds(model, stage, std::min(share, kLongest));
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (!kinds[i]) dense.push_back(layers + static_cast<int64_t>(i));
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
  parallelism.pipeline_split = split;
}

}  // namespace

void shrink_layers(ModelConfig& model, ParallelismConfig& parallelism) {
  if (parallelism.pipeline_parallel_degree == 1) {
    take_first_layers(model);
  } else {
    take_of_each_stage(model, parallelism);
  }
}

}  // namespace athanor::inline verify
