#include "cli/core.h"
#include "config/toml_reader.h"
#include "ops/cpu_allocator.h"
#include "train/run.h"

ATHANOR_CORE_ENTRY(train) {
  const auto& given = *static_cast<const athanor::TrainArguments*>(arguments);
  athanor::ops::install_caching_cpu_allocator();
  return athanor::run_training(athanor::load_run_config(given.config_file, given.overrides));
}
