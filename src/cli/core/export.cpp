#include "arch/inventory.h"
#include "base/console.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/model_source.h"
#include "checkpoint/not_finite.h"
#include "cli/core.h"
#include "saves/import.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"

// These commands need no libtorch yet, but they will: communicators will gather a checkpoint of many ranks.

namespace athanor::inline cli {
namespace {

// Programs that load the folder put around a text what its tokenizer asks for, whatever the model was trained on.
void warn_of_template(const ModelSource& source) {
  if (!source.text_template || source.tokenizer.empty()) return;
  const Tokenizer tokenizer = Tokenizer::load(source.tokenizer);
  TextTemplate asked = tokenizer.text_template();
  if (const auto eos = source.config.eos_token_id()) asked = asked.without_end(static_cast<uint32_t>(*eos));
  if (asked == *source.text_template) return;
  log::warn(
      "the tokenizer puts {} before and {} after a text, and the training data had {} and {}: transformers and "
      "lm_eval do as the tokenizer asks, unless they are told otherwise (add_special_tokens=False)",
      tokenizer.describe(asked.before), tokenizer.describe(asked.after),
      tokenizer.describe(source.text_template->before), tokenizer.describe(source.text_template->after));
}

}  // namespace
}  // namespace athanor::inline cli

ATHANOR_CORE_ENTRY(export) {
  using namespace athanor;
  const auto& given = *static_cast<const ExportArguments*>(arguments);
  const ModelSource source = open_model_source(given.run);
  warn_of_template(source);
  HfExportOptions options;
  options.dtype = dtype_of(number_type(given.dtype, "--dtype"));
  options.max_shard_bytes = given.max_shard_bytes;
  options.tokenizer = source.tokenizer;
  options.overwrite = given.overwrite;
  const ParameterReader read = [&](const ParameterSpec& spec, int64_t first, std::span<float> out) {
    source.read(spec.name, first, out);
    require_finite(out, spec.name, first, source.description);
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

ATHANOR_CORE_ENTRY(import) {
  const auto& given = *static_cast<const athanor::ImportArguments*>(arguments);
  athanor::import_run(given.folder, given.out);
  const std::string train = athanor::shell_word(given.out + "/config.toml");
  if (athanor::find_tokenizer(given.out).empty())
    athanor::log::info(
        "{} is ready: athanor train {} --set data.path=FOLDER; it has no tokenizer, which athanor generate "
        "would need",
        given.out, train);
  else
    athanor::log::info("{} is ready: athanor train {} --set data.path=FOLDER, or athanor generate {} --prompt …",
                       given.out, train, athanor::shell_word(given.out));
  return 0;
}
