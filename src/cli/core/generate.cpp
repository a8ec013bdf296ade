#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/thread_share.h"
#include "cli/core.h"
#include "eval/loaded_model.h"
#include "model/sample.h"
#include "tokenizer/tokenizer.h"

namespace athanor {
namespace {

struct Continuation {
  std::vector<uint32_t> prompt_ids, new_ids;
  bool ended = false;  // ended by an end-of-document token
};

// The prompt is checked before anything is printed.
std::vector<uint32_t> encode_prompt(const LoadedModel& model, const std::string& prompt,
                                    const GenerateArguments& given) {
  auto ids = model.tokenizer.encode(prompt);
  if (ids.empty() && model.eos_id) ids.push_back(*model.eos_id);  // as if a document began
  ATHANOR_CHECK(!ids.empty(), "--prompt is empty, and this model has no end-of-document token to begin from");
  ATHANOR_CHECK(static_cast<int64_t>(ids.size()) + given.max_new_tokens <= model.config.max_position_embeddings,
                "the prompt has {} tokens and --max-new-tokens is {}: together more than the model's {} positions",
                ids.size(), given.max_new_tokens, model.config.max_position_embeddings);
  return ids;
}

Continuation continue_text(const LoadedModel& model, std::vector<uint32_t> prompt_ids, size_t index,
                           const GenerateArguments& given, const std::function<void(uint32_t)>& show) {
  Continuation result;
  result.prompt_ids = std::move(prompt_ids);
  const auto prompt_length = static_cast<int64_t>(result.prompt_ids.size());
  const CounterRandom random(static_cast<uint64_t>(given.seed), fmt::format("generate {}", index));
  auto caches = model.decoder().make_caches(1, prompt_length + given.max_new_tokens);
  Tensor tokens = at::empty({1, prompt_length}, at::kLong);
  std::copy(result.prompt_ids.begin(), result.prompt_ids.end(), tokens.data_ptr<int64_t>());
  for (int64_t i = 0; i < given.max_new_tokens; ++i) {
    const Tensor logits = model.decoder().next_logits(tokens, caches)[0].narrow(0, 0, model.num_tokens());
    const int64_t id = sample_token(logits, {given.temperature, given.top_p}, random.uniform(static_cast<uint64_t>(i)));
    if (model.eos_id && id == static_cast<int64_t>(*model.eos_id)) {
      result.ended = true;
      break;
    }
    result.new_ids.push_back(static_cast<uint32_t>(id));
    show(static_cast<uint32_t>(id));
    tokens = at::full({1, 1}, id, at::kLong);
  }
  return result;
}

void print_text(const LoadedModel& model, const std::string& prompt, size_t index, const GenerateArguments& given) {
  const auto ids = encode_prompt(model, prompt, given);
  StreamDecoder decoder(model.tokenizer);
  const auto put = [](const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  if (index > 0) put("\n");
  put(prompt);
  continue_text(model, ids, index, given, [&](uint32_t id) { put(decoder.push(id)); });
  put(decoder.finish() + "\n");
}

void print_json(const LoadedModel& model, const std::string& prompt, size_t index, const GenerateArguments& given) {
  const auto result = continue_text(model, encode_prompt(model, prompt, given), index, given, [](uint32_t) {});
  const nlohmann::json line = {{"prompt", prompt},
                               {"prompt_ids", result.prompt_ids},
                               {"new_ids", result.new_ids},
                               {"text", model.tokenizer.decode(result.new_ids)},
                               {"ended", result.ended}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace
}  // namespace athanor

ATHANOR_CORE_ENTRY(generate) {
  using namespace athanor;
  const auto& given = *static_cast<const GenerateArguments*>(arguments);
  at::set_num_threads(share_threads(find_thread_limits()).threads);
  const LoadedModel model = load_model(given.model, given.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
  for (size_t i = 0; i < given.prompts.size(); ++i) {
    given.json ? print_json(model, given.prompts[i], i, given) : print_text(model, given.prompts[i], i, given);
  }
  return 0;
}
