#pragma once
// The pre-tokenizer of a tokenizer.json: it cuts text into the words inside which BPE merges.

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/json_node.h"
#include "tokenizer/regex.h"
#include "tokenizer/symbols.h"

namespace athanor::inline tokenizer {

/// Receiver of words: a call through two pointers, without the cost of std::function.
class WordSink {
 public:
  template <class F>
  requires(!std::is_same_v<F, WordSink>) WordSink(F& take)
      : object_(&take), call_([](void* f, std::string_view word) { (*static_cast<F*>(f))(word); }) {}
  void operator()(std::string_view word) const { call_(object_, word); }

 private:
  void* object_;
  void (*call_)(void*, std::string_view);
};

/// One step of cutting. Pieces are passed on in order; empty pieces may occur and have no meaning.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// A word is valid until `sink` returns.
  virtual void split(std::string_view text, RegexScratch& scratch, WordSink sink) const = 0;
  /// Does the same for a text that begins where the document begins, which matters to Metaspace.
  virtual void split_first(std::string_view text, RegexScratch& scratch, WordSink sink) const {
    split(text, scratch, sink);
  }
};

class PreTokenizer {
 public:
  /// @param node   the key "pre_tokenizer"; if it is missing, a text is one word.
  /// @param plain  uses the regex engine in place of every fast path, as the oracle of the fast paths.
  /// @throws DataError naming a part that is not known, by its path.
  static PreTokenizer parse(const std::optional<JsonNode>& node, bool plain = false);

  /// Kind of the words that are produced: bytes if the last step is ByteLevel.
  WordKind words() const { return words_; }

  /// Passes the words of `text` (well-formed UTF-8), none of them empty, to `sink` in order. A word is valid until
  /// `sink` returns.
  /// @param num_first  number of leading bytes of `text` that represent the document's first character or were put
  ///                   before it.
  void split(std::string_view text, size_t num_first, RegexScratch& scratch, WordSink sink) const {
    if (!steps_.empty()) return run(0, text, num_first, scratch, sink);
    if (!text.empty()) sink(text);
  }

 private:
  void run(size_t step, std::string_view text, size_t num_first, RegexScratch& scratch, WordSink sink) const;

  std::vector<std::shared_ptr<const Splitter>> steps_;
  WordKind words_ = WordKind::kCharacters;
};

}  // namespace athanor::inline tokenizer
