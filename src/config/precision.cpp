#include "config/precision.h"

namespace athanor::inline config {

Precision precision_of(const RunConfig& config) {
  return {.compute = number_type(config.train.dtype, "train.dtype"),
          .reduce = number_type(config.train.reduce_dtype, "train.reduce_dtype"),
          .model = number_type(config.checkpoint.model_dtype, "checkpoint.model_dtype"),
          .orthogonalize = orthogonalize_type(config.optimizer)};
}

NumberType orthogonalize_type(const OptimizerConfig& config) {
  return number_type(config.newton_schulz_dtype, "optimizer.newton_schulz_dtype");
}

void choose_type(TrainConfig& train, const std::string& usual) {
  if (train.dtype_was_auto && !usual.empty()) train.dtype = usual;
}

void choose_type_of_devices(TrainConfig& train) { choose_type(train, name_of(NumberType::kBFloat16)); }

}  // namespace athanor::inline config
