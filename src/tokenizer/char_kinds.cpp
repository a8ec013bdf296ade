#include "tokenizer/char_kinds.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "tokenizer/unicode.h"
#include "tokenizer/unicode_categories.h"

namespace athanor::inline tokenizer {
namespace {

uint8_t kinds_of_category(std::string_view name) {
  if (name == "Lu" || name == "Lt") return kind::kCapital;
  if (name == "Ll") return kind::kSmall;
  if (name == "Lm" || name == "Lo") return kind::kCapital | kind::kSmall;
  if (name == "M") return kind::kMark | kind::kCapital | kind::kSmall;
  return kind::kSign;  // P, S
}

}  // namespace

CharKinds::CharKinds() {
  for (uint32_t c = 0; c < kinds_.size(); ++c) {
    switch (char_class(c)) {
      case CharClass::kLetter: kinds_[c] = kind::kLetter; break;
      case CharClass::kNumber: kinds_[c] = kind::kNumber; break;
      case CharClass::kSpace: kinds_[c] = kind::kSpace; break;
      case CharClass::kOther: kinds_[c] = kind::kOther; break;
    }
  }
  for (const auto& category : kGeneralCategories) {
    for (const auto [first, last, step] : category.ranges) {
      for (uint32_t c = first; c <= last; c += step) kinds_[c] |= kinds_of_category(category.name);
    }
  }
  std::copy_n(kinds_.begin(), 128, bytes_.begin());
}

const CharKinds& CharKinds::get() {
  static const std::unique_ptr<const CharKinds> kinds(new CharKinds());
  return *kinds;
}

}  // namespace athanor::inline tokenizer
