#pragma once
// Continues texts with a model, many at the same time, on one rank or on the ranks of a layout.
//
// The first rank decides what is computed next and sends it to the others; the ranks of the last pipeline stage choose
// the tokens and send them to the first. A text that ends makes room for a waiting prompt.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/loaded_model.h"
#include "eval/prompts.h"
#include "model/sample.h"

namespace athanor::inline eval {

struct GenerationOptions {
  int64_t max_new_tokens = 64;
  Sampling sampling = {};
  uint64_t seed = 0;
  std::vector<std::string> stops = {};  ///< none empty: a text ends before the first of them
  int64_t batch_size = 16;              ///< texts that a data rank continues at the same time
  TextTemplate around = {};             ///< tokens around each prompt; used on the first rank
};

/// A prompt with what the model has added.
struct Continuation {
  size_t index = 0;  ///< number of the prompt, from 0; each has its own random numbers
  std::string prompt;
  std::vector<uint32_t> prompt_ids, new_ids;  ///< with those that complete a stop string
  /// What decoding all ids shows behind the text of the prompt, up to a stop string. Decoding new_ids alone may give
  /// another text: many tokenizers drop the space before the first token.
  std::string text;
  bool ended = false;                    ///< by a token that ends texts, which is not in new_ids
  std::optional<std::string> stop = {};  ///< the stop string that has ended it
};

/// What becomes of the answers; called on the first rank.
class ContinuationReader {
 public:
  virtual ~ContinuationReader() = default;
  /// `piece` was added to the answer's text. The first call for an answer has an empty piece; answers begin in order.
  virtual void add(const Continuation& answer, std::string_view piece) = 0;
  /// The answer is complete. Answers end in any order.
  virtual void end(const Continuation& answer) = 0;
  /// Returns the lowest number of an answer that is not written yet: only a bounded number of later ones are computed.
  virtual size_t num_written() const = 0;
};

/// Returns the ids of a prompt in its template; of an empty one without a template the end-of-document token, as if a
/// document began.
/// @throws DataError as Tokenizer::encode; ConfigError if the prompt and max_new_tokens are more than the model's
///         positions, or if there is nothing to begin from.
std::vector<uint32_t> encode_prompt(const LoadedModel& model, const PromptText& prompt,
                                    const GenerationOptions& options);

/// Continues every prompt. Collective over the model's world; prompts and answers are the first rank's, null elsewhere.
/// Memory depends on the batch size and on lengths, and not on the number of prompts. On our tiles no bits of a text
/// depend on the other texts of its batch.
/// @throws as encode_prompt and PromptSource::next.
void generate(const LoadedModel& model, const GenerationOptions& options, PromptSource* prompts,
              ContinuationReader* answers);

}  // namespace athanor::inline eval
