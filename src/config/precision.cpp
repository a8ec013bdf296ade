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

void choose_type_of_devices(TrainConfig& train) {
  if (train.dtype_was_auto) train.dtype = name_of(NumberType::kBFloat16);
}

}  // namespace athanor::inline config
