#pragma once
// Unicode's general categories, in the version that the patterns of `tokenizers` use.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace athanor::inline tokenizer {

/// Every step-th code point from `first` to `last`, both included.
struct SteppedRange {
  uint32_t first, last, step;
};

struct GeneralCategory {
  std::string_view name;  ///< as in \p{...}: kinds of letters by two characters; M, P and S as a whole
  std::span<const SteppedRange> ranges;
};

/// Generated (unicode_categories.cpp).
extern const std::array<GeneralCategory, 8> kGeneralCategories;

}  // namespace athanor::inline tokenizer
