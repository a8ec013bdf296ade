#pragma once
// Unicode's general categories, of the version that the patterns of `tokenizers` know.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace athanor {

/// Every step-th code point from `first` to `last`, both inside.
struct SteppedRange {
  uint32_t first, last, step;
};

struct GeneralCategory {
  std::string_view name;  ///< as in \p{...}: the kinds of letters by two characters, M, P and S whole
  std::span<const SteppedRange> ranges;
};

/// Generated (unicode_categories.cpp).
extern const std::array<GeneralCategory, 8> kGeneralCategories;

}  // namespace athanor
