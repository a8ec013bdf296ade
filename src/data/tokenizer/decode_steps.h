#pragma once
// The steps of a decoder that is a sequence. Each takes tokens one after the other and hands tokens on, as soon as they
// are certain: so a stream gives what decoding all at once gives.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/json_node.h"

namespace athanor {

/// A token, or a part of one that grows (Fuse makes one token of all).
struct TokenPart {
  std::string_view text;  // whole characters
  bool begins = true, ends = true;
};

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Where the result goes; set before anything else.
  void set_next(DecodeStep& next) { next_ = &next; }
  virtual void push(TokenPart part) = 0;
  /// After the last token. Hands on what was held back, and the call.
  virtual void finish() { next_->finish(); }

 protected:
  DecodeStep* next_ = nullptr;
};

/// Makes a step for one list of ids.
using DecodeStepMaker = std::function<std::unique_ptr<DecodeStep>()>;

inline constexpr std::string_view kDecoderKinds =
    "ByteLevel, ByteFallback, Metaspace, Replace, Strip, Fuse, BPEDecoder, WordPiece, Sequence and null";

/// The step of kind `type` (not Sequence), or null if that is not known.
/// @throws DataError by JSON path.
DecodeStepMaker parse_decode_step(const std::string& type, const JsonNode& node);

}  // namespace athanor
