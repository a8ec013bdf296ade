#include "train/train_state.h"

namespace athanor {

TrainState::TrainState(const RunConfig& run_config, DataIdentity data_identity)
    : config(run_config), stage(training_stages(config).front()), data(std::move(data_identity)),
      parameters(make_bucket_entries(config.model), config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat,
                 ParameterStore::Use::kTraining),
      decoder(config.model, parameters, {moe::parse_aux_scope(config.moe.aux_scope), config.train.loss_chunk_tokens}),
      optimizer(config.optimizer, parameters) {}

}  // namespace athanor
