#include "base/log.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/model_source.h"
#include "cli/core.h"

// These need no libtorch yet, but they will: a checkpoint of many ranks is gathered by communicators.

ATHANOR_CORE_ENTRY(export) {
  using namespace athanor;
  const auto& given = *static_cast<const ExportArguments*>(arguments);
  const ModelSource source = open_model_source(given.run);
  HfExportOptions options;
  options.dtype = given.dtype == "float32" ? Dtype::kF32 : Dtype::kBF16;
  options.tokenizer_json = source.tokenizer;
  options.overwrite = given.overwrite;
  std::vector<float> values;
  export_hf_folder(
      given.out, source.config,
      [&](const ParameterSpec& spec) {
        values.resize(static_cast<size_t>(spec.num_elements()));
        source.read(spec.name, values.data());
        return std::span<const float>(values);
      },
      options);
  log::info("{} written from {}", given.out, source.description);
  return 0;
}
