#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/thread_share.h"
#include "cli/core.h"
#include "eval/continuation.h"
#include "eval/loaded_model.h"
#include "ops/device_choice.h"
#include "tokenizer/tokenizer.h"

namespace athanor {
namespace {

// The prompt is checked before anything is printed.
std::vector<uint32_t> encode_prompt(const LoadedModel& model, const std::string& prompt,
                                    const GenerateArguments& given) {
  auto ids = model.tokenizer->encode(prompt);
  if (ids.empty() && model.eos_id) ids.push_back(*model.eos_id);  // as if a document began
  ATHANOR_CHECK(!ids.empty(), "--prompt is empty, and this model has no end-of-document token to begin from");
  ATHANOR_CHECK(static_cast<int64_t>(ids.size()) + given.max_new_tokens <= model.config.max_position_embeddings,
                "the prompt has {} tokens and --max-new-tokens is {}: together more than the model's {} positions",
                ids.size(), given.max_new_tokens, model.config.max_position_embeddings);
  return ids;
}

ContinuationOptions options_of(const GenerateArguments& given, size_t index) {
  return {given.max_new_tokens, {given.temperature, given.top_p}, static_cast<uint64_t>(given.seed), index};
}

void print_text(const LoadedModel& model, const std::string& prompt, size_t index, const GenerateArguments& given) {
  const auto ids = encode_prompt(model, prompt, given);
  StreamDecoder decoder(*model.tokenizer);
  const auto put = [](const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  if (index > 0) put("\n");
  put(prompt);
  continue_tokens(model, ids, options_of(given, index), [&](uint32_t id) { put(decoder.push(id)); });
  put(decoder.finish() + "\n");
}

void print_json(const LoadedModel& model, const std::string& prompt, size_t index, const GenerateArguments& given) {
  const auto result = continue_tokens(model, encode_prompt(model, prompt, given), options_of(given, index));
  const nlohmann::json line = {{"prompt", prompt},
                               {"prompt_ids", result.prompt_ids},
                               {"new_ids", result.new_ids},
                               {"text", model.tokenizer->decode(result.new_ids)},
                               {"ended", result.ended}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace
}  // namespace athanor

ATHANOR_CORE_ENTRY(generate) {
  using namespace athanor;
  const auto& given = *static_cast<const GenerateArguments*>(arguments);
  at::set_num_threads(share_threads(find_thread_limits()).threads);
  const at::Device device = ops::choose_device(given.device, {}, "--device");
  const LoadedModel model = load_model(
      given.model, {.compute_type = given.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat, .device = device});
  for (size_t i = 0; i < given.prompts.size(); ++i) {
    given.json ? print_json(model, given.prompts[i], i, given) : print_text(model, given.prompts[i], i, given);
  }
  return 0;
}
