#pragma once
// Continues a text with a model, token by token.

#include <cstdint>
#include <functional>
#include <vector>

#include "eval/loaded_model.h"
#include "model/sample.h"

namespace athanor {

struct ContinuationOptions {
  int64_t max_new_tokens = 64;
  Sampling sampling = {};
  uint64_t seed = 0;
  size_t index = 0;  ///< number of the prompt: each has its own random numbers
};

struct Continuation {
  std::vector<uint32_t> prompt_ids, new_ids;
  bool ended = false;  ///< by an end-of-document token, which is not in new_ids
};

/// Appends tokens to a prompt. On a device, keys and values stay there, and each token costs one fetch of its logits,
/// for which the host waits.
/// @param prompt_ids  not empty; with max_new_tokens at most the model's positions.
/// @param show  called with each new token.
Continuation continue_tokens(const LoadedModel& model, std::vector<uint32_t> prompt_ids,
                             const ContinuationOptions& options, const std::function<void(uint32_t)>& show = {});

}  // namespace athanor
