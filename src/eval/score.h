#pragma once
// Scores texts with a model: how probable the model finds them. This header needs no libtorch.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace athanor::inline eval {

struct ScoringOptions {
  std::string dtype = "float32";  ///< the type that the model computes in: float32 or bfloat16
  std::string device = "auto";    ///< auto, cpu, cuda or xpu, as train.device; auto: an accelerator if there is one
  int threads = 0;                ///< threads that compute; 0: as many as a training run of one rank would use here
  int64_t chunk_tokens = 1024;    ///< tokens whose logits are in memory at the same time
};

struct TokenScore {
  uint32_t id = 0;
  float log_probability = 0;  ///< natural logarithm, given the tokens before it
  bool is_greedy = false;     ///< true if greedy decoding would have chosen this token
};

struct TextScore {
  std::vector<TokenScore> tokens;  ///< the scored tokens, in the order of the text
  int64_t num_bytes = 0;           ///< bytes of the scored tokens in UTF-8: all, or all but those of the first token

  /// Returns the sum over the tokens.
  double log_probability() const;
  /// Returns -log2 of the text's probability per byte, which models with different tokenizers can be compared by; 0 for
  /// an empty text.
  double bits_per_byte() const;
};

/// A model that is loaded for scoring. One thread may use an object at a time; the model itself uses several.
class TextScorer {
 public:
  /// Loads a run folder, a checkpoint, or a `transformers` folder, which must have a tokenizer.
  /// @throws CheckpointError; DataError if the tokenizer is missing or does not fit; ConfigError for an unknown dtype.
  explicit TextScorer(const std::filesystem::path& model, const ScoringOptions& options = {});
  ~TextScorer();
  TextScorer(TextScorer&&) noexcept;
  TextScorer& operator=(TextScorer&&) noexcept;

  /// Scores a text as a whole document: its first token is conditioned on what stands before a text (BOS, where the
  /// training data or the tokenizer of a folder from elsewhere have it). Without that it is the end-of-document token,
  /// as in training. A model without such a token scores from the second token on. A text with more tokens than the
  /// model has positions is cut into parts of that many tokens. A token is then conditioned on those before it in its
  /// part, and on the last one of the part before.
  /// @throws DataError if `utf8` is not UTF-8.
  TextScore score(std::string_view utf8);

  const Tokenizer& tokenizer() const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace athanor::inline eval
