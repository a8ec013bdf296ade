#pragma once
// Finds which of many words a text has, in one pass over its bytes (Aho and Corasick, 1975): so that the patterns of
// signatures are tried only on lines that can match.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::launch {

class TriggerWords {
 public:
  /// @param words  none empty and none with the end of a line; their numbers are their positions.
  explicit TriggerWords(const std::vector<std::string>& words);

  /// Returns the first position at or after `from` at which a word has ended, or npos.
  size_t find_end(std::string_view text, size_t from) const;
  /// Appends the numbers of all words in `line` to `found`, each once.
  void find_all(std::string_view line, std::vector<uint32_t>& found) const;

 private:
  using State = uint32_t;
  State next(State state, unsigned char byte) const { return moves_[state + class_of_[byte]]; }

  void lay_out(const std::vector<std::vector<uint32_t>>& tree, const std::vector<uint32_t>& in_order);

  // A state is the offset of its row in `moves_`; the highest bit marks that a word ends there.
  static constexpr State kEnds = 1U << 31;
  std::array<uint8_t, 256> class_of_{};  // bytes that are in no word have class 0
  uint32_t num_classes_ = 1;
  std::vector<State> moves_;
  std::vector<std::vector<uint32_t>> words_at_;  // by row
  size_t num_words_ = 0;
};

}  // namespace athanor::launch
