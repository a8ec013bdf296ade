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
  export_hf_folder(given.out, source.config, read, options);
  log::info("{} written from {}", given.out, source.description);
  return 0;
}
