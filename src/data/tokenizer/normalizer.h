#pragma once
// The normalizer of a tokenizer.json: what is done to the text before it is cut.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_node.h"
#include "data/tokenizer/regex.h"

namespace athanor {

/// One change of a text.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  /// `text` itself where nothing changes, otherwise a view of `storage` (which `text` is not in). `text` is well-formed
  /// UTF-8 and not empty.
  virtual std::string_view apply(std::string_view text, RegexScratch& scratch, std::string& storage) const = 0;
};

class Normalizer {
 public:
  /// What one thread needs; what apply returned may lie in it.
  struct Scratch {
    std::string storage[2];
  };

  /// Does nothing.
  Normalizer() = default;

  /// @throws DataError naming a kind that is not known, by its path.
  static Normalizer parse(const std::optional<JsonNode>& node);

  /// `text` itself where nothing changes, otherwise a view of `scratch`. `text` is well-formed UTF-8.
  /// @throws DataError if the text grows beyond max_normalized_bytes.
  std::string_view apply(std::string_view text, RegexScratch& regex, Scratch& scratch) const;

 private:
  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
};

/// How long a text may become: 64 MiB and 16 times its size, so that a file whose rules make a gigabyte of a line is
/// refused and not obeyed. No Unicode form makes more than 11 times of a text.
constexpr size_t max_normalized_bytes(size_t text_bytes) { return (size_t{64} << 20) + 16 * text_bytes; }

}  // namespace athanor
