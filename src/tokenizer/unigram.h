#pragma once
// Unigram segmentation: finds the pieces of a normalised text with the highest total score, by the Viterbi algorithm.
// Source: Kudo, ACL 2018.
//
// libsentencepiece has it too, but its versions add the same scores with different rounding, so ids change with the
// version (a run of hyphens is enough). This implementation rounds as version 0.2.3 does, whatever library is
// installed.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/sentencepiece_file.h"

namespace athanor::inline tokenizer {

/// A trie of strings. A node's children have consecutive numbers.
class PieceTrie {
 public:
  struct Entry {
    std::string_view text;
    uint32_t value;
  };
  /// @param entries  of different texts, none of which need to outlive the call.
  explicit PieceTrie(std::vector<Entry> entries);

  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kRoot = 0;
  /// Returns kNone if there is no such child.
  uint32_t child(uint32_t node, unsigned char byte) const;
  /// Returns kNone if no string ends at the node.
  uint32_t value(uint32_t node) const { return nodes_[node].value; }

 private:
  struct Node {
    uint32_t first_child = 0, num_children = 0, value = kNone;
    unsigned char byte = 0;
  };
  std::vector<Node> nodes_;
};

class Unigram {
 public:
  struct Scratch {
    struct Best {
      float score;
      uint32_t begin, id;
    };
    std::vector<Best> ending_at;
    std::vector<Best> path;
  };

  /// `file` may be destroyed afterwards: the trie has copies of its texts.
  explicit Unigram(const SentencePieceFile& file);

  /// Calls `on_piece(piece, id)` in order; `id` is empty for a character that no piece covers. `normalized` is
  /// well-formed UTF-8.
  template <class OnPiece>
  void encode(std::string_view normalized, Scratch& scratch, OnPiece&& on_piece) const {
    find_path(normalized, scratch);
    size_t end = normalized.size();
    for (size_t i = scratch.path.size(); i-- > 0;) {
      const auto& piece = scratch.path[i];
      const size_t next = i > 0 ? scratch.path[i - 1].begin : end;
      on_piece(normalized.substr(piece.begin, next - piece.begin),
               piece.id == kUnknown ? std::nullopt : std::optional(piece.id));
    }
  }

 private:
  static constexpr uint32_t kUnknown = ~uint32_t{0}, kNowhere = ~uint32_t{0};

  void find_path(std::string_view text, Scratch& scratch) const;

  std::vector<float> scores_;
  std::vector<bool> user_defined_, unused_;
  float unknown_score_;
  PieceTrie trie_;
};

}  // namespace athanor::inline tokenizer
