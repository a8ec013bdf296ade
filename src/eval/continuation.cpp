#include "eval/continuation.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "ops/transfer.h"

namespace athanor {

Continuation continue_tokens(const LoadedModel& model, std::vector<uint32_t> prompt_ids,
                             const ContinuationOptions& options, const std::function<void(uint32_t)>& show) {
  Continuation result;
  result.prompt_ids = std::move(prompt_ids);
  const auto prompt_length = static_cast<int64_t>(result.prompt_ids.size());
  const CounterRandom random(options.seed, fmt::format("generate {}", options.index));
  auto caches = model.decoder().make_caches(1, prompt_length + options.max_new_tokens);
  Tensor tokens = at::empty({1, prompt_length}, at::kLong);
  std::copy(result.prompt_ids.begin(), result.prompt_ids.end(), tokens.data_ptr<int64_t>());
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const Tensor logits = ops::fetch(model.decoder().next_logits(tokens, caches))[0].narrow(0, 0, model.num_tokens);
    const int64_t id = sample_token(logits, options.sampling, random.uniform(static_cast<uint64_t>(i)));
    if (model.eos_id && id == static_cast<int64_t>(*model.eos_id)) {
      result.ended = true;
      break;
    }
    result.new_ids.push_back(static_cast<uint32_t>(id));
    if (show) show(static_cast<uint32_t>(id));
    tokens = at::full({1, 1}, id, at::kLong);
  }
  return result;
}

}  // namespace athanor
