#pragma once
// What the ranks compute next while texts are continued: decided by the first rank, and sent to the others.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::inline eval {

/// Either some data ranks begin new texts, or all continue their texts by one token.
struct GenerationWork {
  struct NewText {
    int64_t index = 0;         ///< number of its prompt
    std::vector<int64_t> ids;  ///< not empty
  };
  /// The work of one data rank. Its texts are in slots 0, 1, …; new texts get the next ones.
  struct Part {
    /// Slots of texts that ended, which are left first, in this order: the last text moves into each.
    std::vector<int64_t> left;
    std::vector<NewText> begun;
    std::vector<int64_t> next;  ///< the newest token of each text; empty if any data rank begins texts
  };

  std::vector<Part> parts;  ///< by data rank; empty: the end
  int64_t slots = 0;        ///< the most texts that a data rank has had so far
  int64_t capacity = 0;     ///< tokens that a slot has room for; it never becomes less
  bool begins() const;

  std::string bytes() const;
  static GenerationWork from_bytes(const std::string& bytes);
};

}  // namespace athanor::inline eval
