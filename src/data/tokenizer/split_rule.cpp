#include "data/tokenizer/split_rule.h"

#include "data/tokenizer/unicode.h"

namespace athanor {
namespace {

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior parse_behavior(const JsonNode& node) {
  const auto& name = node.as_string();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  node.complain("unknown behavior \"{}\"; expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                name);
}

// Takes matches and the gaps between them in order, and passes pieces on as the behavior says.
class Joiner {
 public:
  Joiner(std::string_view text, Behavior behavior, WordSink sink) : text_(text), behavior_(behavior), sink_(sink) {}

  void take(size_t begin, size_t end, bool is_match) {
    if (behavior_ == Behavior::kRemoved && is_match) return;
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
      case Behavior::kMergedWithPrevious: return is_match && !pending_is_match_;
      case Behavior::kMergedWithNext: return pending_is_match_ && !is_match;
      case Behavior::kContiguous: return is_match == pending_is_match_;
      default: return false;
    }
  }

  std::string_view text_;
  Behavior behavior_;
  WordSink sink_;
  size_t begin_ = 0, end_or_none_ = 0;
  bool pending_is_match_ = false;
};

class SplitRule : public Splitter {
 public:
  SplitRule(Regex pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, RegexScratch& scratch, WordSink sink) const override {
    Joiner joiner(text, behavior_, sink);
    size_t done = 0, from = 0;
    bool any = false;
    Regex::Match match;
    while (from <= text.size() && pattern_.find(text, from, scratch, match)) {
      const bool empty = match.begin == match.end;
      // An empty match right behind the one before it does not count.
      if (!empty || !any || match.begin != done) {
        if (match.begin > done) joiner.take(done, match.begin, invert_);
        joiner.take(match.begin, match.end, !invert_);
        done = match.end;
        any = true;
      }
      from = match.end;
      if (empty) from += from < text.size() ? decode_utf8(text.data() + from).num_bytes : 1;
    }
    if (done < text.size()) joiner.take(done, text.size(), invert_);
    joiner.flush();
  }

 private:
  Regex pattern_;
  Behavior behavior_;
  bool invert_;
};

Regex parse_pattern(const JsonNode& node) {
  const auto literal = node.find("String");
  const auto source = literal ? *literal : node.at("Regex");
  const auto& text = source.as_string();
  if (text.empty()) source.complain("an empty pattern cuts nothing; expected text");
  try {
    return Regex(literal ? escape_regex(text) : text);
  } catch (const DataError& error) {
    source.complain("{}", error.what());
  }
}

}  // namespace

std::shared_ptr<const Splitter> parse_split_rule(const JsonNode& node) {
  return std::make_shared<SplitRule>(parse_pattern(node.at("pattern")), parse_behavior(node.at("behavior")),
                                     node.at("invert").as_bool());
}

}  // namespace athanor
