#include "tokenizer/split_rule.h"

#include "tokenizer/known_patterns.h"
#include "tokenizer/pattern.h"

namespace athanor::inline tokenizer {

SplitBehavior parse_split_behavior(const JsonNode& node) {
  const auto& name = node.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.complain("unknown behavior \"{}\"; expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                name);
}

namespace {

class SplitRule : public Splitter {
 public:
  SplitRule(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, RegexScratch& scratch, WordSink sink) const override {
    PieceJoiner joiner(text, behavior_, sink);
    size_t done = 0;
    pattern_.for_each_match(text, scratch, [&](size_t begin, size_t end) {
      if (begin > done) joiner.take(done, begin, invert_);
      joiner.take(begin, end, !invert_);
      done = end;
    });
    if (done < text.size()) joiner.take(done, text.size(), invert_);
    joiner.flush();
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Does the same without the engine, for known patterns.
class KnownSplit : public Splitter {
 public:
  explicit KnownSplit(const KnownPattern& pattern) : pattern_(pattern) {}
  void split(std::string_view text, RegexScratch&, WordSink sink) const override { pattern_.cut(text, sink); }

 private:
  const KnownPattern& pattern_;
};

// Returns true if matches and gaps are both pieces, or if there are only matches and they are kept.
bool keeps_all(const KnownPattern& pattern, SplitBehavior behavior, bool invert) {
  return behavior == SplitBehavior::kIsolated ||
         (behavior == SplitBehavior::kRemoved && invert && !pattern.leaves_gaps);
}

}  // namespace

std::shared_ptr<const Splitter> parse_split_rule(const JsonNode& node, bool plain) {
  const auto behavior = parse_split_behavior(node.at("behavior"));
  const bool invert = node.at("invert").as_bool();
  auto pattern = Pattern::parse(node.at("pattern"));
  if (const auto regex = node.at("pattern").find("Regex"); regex && !plain) {
    const auto* known = find_known_pattern(regex->as_string());
    if (known && keeps_all(*known, behavior, invert)) return std::make_shared<KnownSplit>(*known);
  }
  return std::make_shared<SplitRule>(std::move(pattern), behavior, invert);
}

}  // namespace athanor::inline tokenizer
