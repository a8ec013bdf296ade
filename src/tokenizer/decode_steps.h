#pragma once
// The steps of a decoder that is a sequence. Each step receives tokens one after another and passes tokens on as soon
// as they are certain, so a stream produces the same text as decoding all ids at once.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_node.h"

namespace athanor::inline tokenizer {

/// A token, or a part of a token that grows (Fuse joins all tokens to one).
struct TokenPart {
  std::string_view text;  // whole characters
  bool begins = true, ends = true;
};

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Sets the receiver of the result; must be called first.
  void set_next(DecodeStep& next) { next_ = &next; }
  /// Takes the next token or part. `part.text` is valid only during the call.
  virtual void push(TokenPart part) = 0;
  /// Must be called after the last token. Passes on what was held back, then calls finish() of the next step.
  virtual void finish() { next_->finish(); }

 protected:
  DecodeStep* next_ = nullptr;
};

/// Creates a step for one list of ids.
using DecodeStepMaker = std::function<std::unique_ptr<DecodeStep>()>;

inline constexpr std::string_view kDecoderKinds =
    "ByteLevel, ByteFallback, Metaspace, Replace, Strip, Fuse, BPEDecoder, WordPiece, Sequence and null";

/// Returns the maker of steps of kind `type` (not Sequence), or null if the kind is not known.
/// @throws DataError by JSON path.
DecodeStepMaker parse_decode_step(const std::string& type, const JsonNode& node);

}  // namespace athanor::inline tokenizer
