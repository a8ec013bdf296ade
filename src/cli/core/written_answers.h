#pragma once
// Writes the answers of generation to standard output, in the order of their prompts.

#include <memory>

#include "eval/generation.h"

namespace athanor::inline cli {

/// Text as it comes, the prompt first, with an empty line between two answers. Of answers that are computed at the same
/// time the first is shown as it comes; the others are held back.
std::unique_ptr<ContinuationReader> answers_as_text();

/// A JSON object on a line for each answer, when it and all before it are complete: prompt, prompt_ids, new_ids, text,
/// ended, stop.
std::unique_ptr<ContinuationReader> answers_as_json();

}  // namespace athanor::inline cli
