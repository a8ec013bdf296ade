#pragma once
// The pre-tokenizer "Split": it cuts at the matches of a pattern and has a rule for the matches themselves.

#include <memory>
#include <string_view>

#include "base/json_node.h"
#include "tokenizer/pre_tokenizer.h"

namespace athanor::inline tokenizer {

/// The treatment of the matches at which a pre-tokenizer cuts, as in `tokenizers`: a match is left out, is a piece, or
/// is joined with the piece before it or after it; or neighbouring matches are one piece.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// @throws DataError by JSON path.
SplitBehavior parse_split_behavior(const JsonNode& node);

/// Takes matches and the gaps between them in order, and passes pieces on according to the behavior. flush() must be
/// called at the end.
class PieceJoiner {
 public:
  PieceJoiner(std::string_view text, SplitBehavior behavior, WordSink sink)
      : text_(text), behavior_(behavior), sink_(sink) {}

  /// Takes bytes [begin, end) of the text.
  void take(size_t begin, size_t end, bool is_match) {
    if (behavior_ == SplitBehavior::kRemoved && is_match) return;
    const bool joins = begin_ != end_or_none_ && joins_pending(is_match);
    if (!joins) {
      flush();
      begin_ = begin;
    }
    end_or_none_ = end;
    pending_is_match_ = is_match;
  }

  void flush() {
    if (end_or_none_ > begin_) sink_(text_.substr(begin_, end_or_none_ - begin_));
    begin_ = end_or_none_;
  }

 private:
  bool joins_pending(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious: return is_match && !pending_is_match_;
      case SplitBehavior::kMergedWithNext: return pending_is_match_ && !is_match;
      case SplitBehavior::kContiguous: return is_match == pending_is_match_;
      default: return false;
    }
  }

  std::string_view text_;
  SplitBehavior behavior_;
  WordSink sink_;
  size_t begin_ = 0, end_or_none_ = 0;
  bool pending_is_match_ = false;
};

/// `plain` uses the regex engine for every pattern: the oracle of the fast paths.
/// @throws DataError by JSON path: an unknown behavior, a pattern that is not supported.
std::shared_ptr<const Splitter> parse_split_rule(const JsonNode& node, bool plain);

}  // namespace athanor::inline tokenizer
