#include "arch/inventory.h"
#include "base/console.h"
#include "base/log.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/model_source.h"
#include "cli/core.h"

// These commands need no libtorch yet, but they will: communicators will gather a checkpoint of many ranks.

ATHANOR_CORE_ENTRY(export) {
  using namespace athanor;
  const auto& given = *static_cast<const ExportArguments*>(arguments);
  const ModelSource source = open_model_source(given.run);
  HfExportOptions options;
  options.dtype = given.dtype == "float32" ? Dtype::kF32 : Dtype::kBF16;
  options.max_shard_bytes = given.max_shard_bytes;
  options.tokenizer = source.tokenizer;
  options.overwrite = given.overwrite;
  const ParameterReader read = [&](const ParameterSpec& spec, int64_t first, std::span<float> out) {
    source.read(spec.name, first, out);
  };
  const auto elements = static_cast<uint64_t>(count_parameters(source.config.model));
  ProgressBar progress("exporting", elements * dtype_size(options.dtype), "B", kLongWork_s);
  Team alone;
  alone.worked = [&](int64_t num_bytes) { progress.add(static_cast<uint64_t>(num_bytes)); };
  export_hf_folder(given.out, source.config, read, options, alone);
  progress.finish();
  log::info("{} written from {}", given.out, source.description);
  return 0;
}
