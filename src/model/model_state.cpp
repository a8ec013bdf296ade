#include "model/model_state.h"

#include <limits>

#include "base/log.h"
#include "config/precision.h"
#include "layout/shards.h"
#include "moe/dispatch_auto.h"
#include "ops/device_choice.h"
#include "ops/tensor.h"
#include "ops/transfer.h"

namespace athanor::inline model {
namespace {

at::ScalarType compute_type(const RunConfig& config) { return ops::scalar_type(precision_of(config).compute); }

// Consecutive ranks of the expert group that share a node, where each node has as many; else 1.
int ranks_of_a_node(const RunConfig& config, const Mesh& mesh) {
  const auto& ranks = mesh.group(GroupKind::kExpert).options().world_ranks;
  const int64_t per_node = config.topology.ranks_per_node;
  const auto same_node = [&](int a, int b) {
    return per_node > 0 ? a / per_node == b / per_node
                        : mesh.world().hosts()[static_cast<size_t>(a)] == mesh.world().hosts()[static_cast<size_t>(b)];
  };
  size_t run = 1;
  while (run < ranks.size() && same_node(ranks[0], ranks[run])) ++run;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (same_node(ranks[i - 1], ranks[i]) != (i % run != 0)) return 1;
  }
  return ranks.size() % run == 0 ? static_cast<int>(run) : 1;
}

moe::BalanceOptions balance_options(const MoeConfig& moe) {
  return {moe.balance, moe.balance_group, moe.capacity_factor, moe.capacity_order};
}

// Returns KnownTokens::most_of_expert of a microbatch in training.
int64_t most_of_expert(const RunConfig& config) {
  const int64_t sequences = config.train.micro_batch_size;
  return moe::most_choices_of_expert(balance_options(config.moe), sequences, sequences * config.data.seq_len,
                                     config.model.num_experts_per_tok, config.model.num_experts);
}

std::shared_ptr<moe::Dispatch> make_dispatch(const RunConfig& config, const Mesh& mesh, at::Device device,
                                             const std::filesystem::path& file, std::string& record) {
  if (mesh.layout().expert() == 1) return nullptr;
  moe::DispatchOptions options;
  options.kind = config.moe.dispatch;
  options.chunks = config.moe.dispatch_chunks;
  options.inner_ranks = ranks_of_a_node(config, mesh);
  if (options.kind == DispatchKind::kAuto) {
    const ModelConfig& m = config.model;
    const moe::DispatchShape shape{config.train.micro_batch_size * config.data.seq_len,
                                   m.num_experts_per_tok,
                                   m.hidden_size,
                                   m.expert_intermediate_size() / mesh.layout().tensor(),
                                   m.num_experts,
                                   compute_type(config),
                                   device,
                                   most_of_expert(config),
                                   form_of_experts(make_sparse(m, 0, ""))};
    const auto tuned = moe::tune_dispatch(mesh.world().all(), mesh.group(GroupKind::kExpert), shape, options, file);
    if (mesh.is_first() && !tuned.remembered) log::info("{}", tuned.table);
    options = tuned.options;
    record = tuned.record;
  }
  options.chunks = std::max<int64_t>(1, options.chunks);
  return std::make_shared<moe::Dispatch>(mesh.group(GroupKind::kExpert), options);
}

}  // namespace

DecoderOptions ModelState::decoder_options(const RunConfig& config, const ModelStateOptions& given) {
  const MoeConfig& moe = config.moe;
  DecoderOptions options;
  options.aux_scope = moe.aux_scope;
  options.loss_chunk_tokens = config.train.loss_chunk_tokens;
  options.recompute = parse_recompute(config.parallelism.recompute);
  options.routing.balance = balance_options(moe);
  options.routing.balance_ranks = &mesh.group(GroupKind::kBalance);
  options.routing.expert_ranks = mesh.layout().expert();
  options.routing.noise_stddev = moe.router_noise;
  options.routing.seed = static_cast<uint64_t>(config.train.seed);
  options.routing.combine = moe.combine_weights;
  options.dispatch = make_dispatch(config, mesh, device(), given.dispatch_file, dispatch_record);
  options.tensor = {&mesh.group(GroupKind::kTensor), config.parallelism.sequence_parallel};
  options.observers = given.observers;
  if (!plan.is_trivial()) options.gatherer = &gatherer;
  return options;
}

ModelState::ModelState(const RunConfig& config, Mesh& ranks, const ModelStateOptions& options)
    : mesh(ranks), plan(mesh, config.parallelism.sharding),
      parameters(make_bucket_entries(held_parameters(config.model, config.parallelism, mesh.layout(), mesh.rank())),
                 compute_type(config), options.use, plan.sharding(bucket_elements(config)), options.device),
      gatherer(parameters, plan), chunks(make_chunks(config, options)), wrapped_(wrap(config, options)),
      pipeline(stages(), mesh.group(GroupKind::kPipeline), options.observers) {
  ops::set_numerics_of(options.device);
  enter(config);
  const ModelConfig& model = config.model;
  if (!model.is_moe()) return;
  const double uniform = static_cast<double>(model.num_experts_per_tok) / static_cast<double>(model.num_experts);
  set_previous_share(at::full({model.num_sparse_layers(), model.num_experts}, uniform,
                              parameters.compute().options().dtype(at::kFloat)));
  if (config.moe.bias_update_rate > 0) set_router_bias(at::zeros_like(previous_share));
}

std::vector<std::unique_ptr<Decoder>> ModelState::make_chunks(const RunConfig& config, const ModelStateOptions& given) {
  std::vector<std::unique_ptr<Decoder>> result;
  DecoderOptions options = decoder_options(config, given);
  const int pipeline_rank = mesh.layout().coordinate(mesh.rank(), Axis::kPipeline);
  for (const StageLayers& layers : stages_of(config.model, config.parallelism, pipeline_rank)) {
    options.stage = layers;
    result.push_back(std::make_unique<Decoder>(config.model, parameters, options));
  }
  return result;
}

std::vector<std::unique_ptr<Stage>> ModelState::wrap(const RunConfig& config, const ModelStateOptions& options) {
  std::vector<std::unique_ptr<Stage>> result(chunks.size());
  if (!options.wrap_stage) return result;
  const int pipeline_rank = mesh.layout().coordinate(mesh.rank(), Axis::kPipeline);
  const auto layers = stages_of(config.model, config.parallelism, pipeline_rank);
  for (size_t c = 0; c < chunks.size(); ++c) result[c] = options.wrap_stage(*chunks[c], layers[c], mesh);
  return result;
}

std::vector<Stage*> ModelState::stages() const {
  std::vector<Stage*> result;
  for (size_t c = 0; c < chunks.size(); ++c) result.push_back(wrapped_[c] ? wrapped_[c].get() : chunks[c].get());
  return result;
}

void ModelState::enter(const RunConfig& config) {
  mesh.enter(Layout(config, mesh.world().size()));
  const Layout& layout = mesh.layout();
  ATHANOR_ASSERT(layout.microbatches() <= std::numeric_limits<int>::max());
  pipeline.set_schedule(make_schedule(config.parallelism.pipeline_schedule.word(), layout.pipeline(),
                                      static_cast<int>(config.parallelism.virtual_stages),
                                      static_cast<int>(layout.microbatches())));
}

void ModelState::set_previous_share(const Tensor& share) {
  // In place: a graph of the step reads it where it is.
  if (previous_share.defined() && previous_share.sizes() == share.sizes()) {
    previous_share.copy_(ops::send(share, device()));
    return;
  }
  previous_share = ops::send(share, device());
  for (const auto& chunk : chunks) chunk->set_previous_share(previous_share);
}

void ModelState::set_router_bias(const Tensor& bias) {
  router_bias = ops::send(bias, device());
  for (const auto& chunk : chunks) chunk->set_router_bias(router_bias);
}

}  // namespace athanor::inline model
