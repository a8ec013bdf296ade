#include "eval/continued_text.h"

#include <algorithm>

namespace athanor::inline eval {

ContinuedText::ContinuedText(const Tokenizer& tokenizer, std::span<const uint32_t> prompt_ids)
    : decoder_(tokenizer), of_prompt_(tokenizer.decode(prompt_ids)) {
  for (const uint32_t id : prompt_ids) behind_prompt(decoder_.push(id));
}

std::string ContinuedText::behind_prompt(std::string piece) {
  if (of_prompt_.empty()) return piece;
  const size_t common = std::min(of_prompt_.size(), piece.size());
  if (of_prompt_.compare(0, common, piece, 0, common) != 0) {  // its last character is complete only now
    of_prompt_.clear();
    return piece;
  }
  of_prompt_.erase(0, common);
  return piece.substr(common);
}

}  // namespace athanor::inline eval
