#include "train/train_state.h"

namespace athanor {

namespace {

DecoderOptions decoder_options(const RunConfig& config) {
  const MoeConfig& moe = config.moe;
  DecoderOptions options;
  options.aux_scope = moe::parse_aux_scope(moe.aux_scope);
  options.loss_chunk_tokens = config.train.loss_chunk_tokens;
  options.recompute = parse_recompute(config.parallelism.recompute);
  options.routing.balance = {moe::parse_balance(moe.balance), moe.balance_group, moe.capacity_factor,
                             moe::parse_capacity_order(moe.capacity_order)};
  options.routing.noise_stddev = moe.router_noise;
  options.routing.seed = static_cast<uint64_t>(config.train.seed);
  options.routing.combine = moe::parse_combine_weights(moe.combine_weights);
  return options;
}

}  // namespace

TrainState::TrainState(const RunConfig& run_config, DataIdentity data_identity)
    : config(run_config), stage(training_stages(config).front()), data(std::move(data_identity)),
      parameters(make_bucket_entries(config.model), config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat,
                 ParameterStore::Use::kTraining),
      decoder(config.model, parameters, decoder_options(config)), optimizer(config.optimizer, parameters) {
  if (config.model.is_moe() && config.moe.bias_update_rate > 0)
    decoder.set_router_bias(at::zeros({config.model.num_sparse_layers(), config.model.num_experts}, at::kFloat));
}

}  // namespace athanor
