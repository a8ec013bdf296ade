#pragma once
// The normalizer of a tokenizer.json: it changes the text before it is cut into words.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_node.h"
#include "tokenizer/regex.h"

namespace athanor::inline tokenizer {

/// One change of a text.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  /// Returns `text` itself if nothing changes, otherwise a view of `storage` (in which `text` must not be). `text` is
  /// well-formed UTF-8 and not empty.
  virtual std::string_view apply(std::string_view text, RegexScratch& scratch, std::string& storage) const = 0;
};

class Normalizer {
 public:
  /// Working memory of one thread; the result of apply() may be in it.
  struct Scratch {
    std::string storage[2];
  };

  /// Changes nothing.
  Normalizer() = default;

  /// @param node  the key "normalizer", which may be missing: nothing is then changed.
  /// @throws DataError naming a kind that is not known, by its path.
  static Normalizer parse(const std::optional<JsonNode>& node);

  /// Returns `text` itself if nothing changes, otherwise a view of `scratch`. `text` is well-formed UTF-8.
  /// @throws DataError if the text grows beyond max_normalized_bytes.
  std::string_view apply(std::string_view text, RegexScratch& regex, Scratch& scratch) const;

 private:
  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
};

/// Bytes that a text may grow to: 64 MiB plus 16 times its size, so that a file whose rules turn a line into a gigabyte
/// is refused and not obeyed. No Unicode form multiplies the size of a text by more than 11.
constexpr size_t max_normalized_bytes(size_t text_bytes) { return (size_t{64} << 20) + 16 * text_bytes; }

}  // namespace athanor::inline tokenizer
