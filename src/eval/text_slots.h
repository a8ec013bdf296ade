#pragma once
// The texts that a rank continues at the same time: their keys and values in the caches of its pipeline stages, and the
// passes of new tokens through the model on any layout.

#include <cstdint>
#include <string>
#include <vector>

#include "eval/loaded_model.h"
#include "model/sample.h"

namespace athanor::inline eval {

/// What the ranks compute next while texts are continued: decided by the first rank, and sent to the others. Either
/// some data ranks begin new texts, or all continue their texts by one token.
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

class TextSlots {
 public:
  /// @param model  must outlive this. @param seed  of the random numbers: each is a function of the seed, the number of
  ///        the prompt and the number of the token.
  TextSlots(const LoadedModel& model, const Sampling& sampling, uint64_t seed);

  /// Does the work of this rank's data rank, and returns the next token of each text that got tokens (of the begun
  /// ones, or of all). On the last pipeline stage only; empty elsewhere. Collective over the ranks of the layout, which
  /// do the same work. On a device keys and values stay there, and a call costs one fetch of logits, for which the host
  /// waits.
  std::vector<int64_t> compute(const GenerationWork& work);

 private:
  struct Text {
    int64_t index, length, num_new;  ///< number of the prompt, tokens in the caches, tokens chosen
  };
  void leave(int64_t slot);
  void grow(int64_t slots, int64_t capacity);
  NewTokens begin(const std::vector<GenerationWork::NewText>& texts);
  NewTokens go_on();
  Tensor run_stages(const NewTokens& tokens, Tensor x);
  std::vector<int64_t> choose(const NewTokens& tokens, const Tensor& logits);

  const LoadedModel& model_;
  Sampling sampling_;
  uint64_t seed_;
  int64_t slots_ = 0, capacity_ = 0;
  std::vector<std::vector<KvCache>> caches_;  ///< for each pipeline stage of this rank, for each of its layers
  std::vector<Text> texts_;                   ///< by slot
};

}  // namespace athanor::inline eval
