#include "tokenizer/split_behavior.h"

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

}  // namespace athanor::inline tokenizer
