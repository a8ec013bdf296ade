#pragma once
// The normalizer of a tokenizer.json: what is done to the text before it is cut. So far nothing, or NFC.

#include <string>
#include <string_view>

#include "data/tokenizer/json_node.h"

namespace athanor {

class Normalizer {
 public:
  /// Does nothing.
  Normalizer() = default;

  /// @throws DataError naming a kind that is not known.
  static Normalizer parse(const JsonNode& node);

  /// `text` itself where nothing changes, otherwise a view of `storage`. `text` is well-formed UTF-8.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  bool nfc_ = false;
};

}  // namespace athanor
