#pragma once
// The pre-tokenizer of a tokenizer.json: cuts text into the words inside which BPE merges.

#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "data/tokenizer/json_node.h"
#include "data/tokenizer/regex.h"

namespace athanor {

/// Where words go: a call through two pointers, without the cost of std::function.
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

/// One step of cutting. Pieces come in order; empty ones may come and mean nothing.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// A word lives until `sink` returns.
  virtual void split(std::string_view text, RegexScratch& scratch, WordSink sink) const = 0;
};

class PreTokenizer {
 public:
  /// The steps of `node`, of which the last must be ByteLevel: words are bytes.
  /// @throws DataError naming a part that is not known.
  static PreTokenizer parse(const JsonNode& node);

  /// Hands the words of `text` (well-formed UTF-8), none of them empty, to `sink` in order.
  void split(std::string_view text, RegexScratch& scratch, WordSink sink) const { run(0, text, scratch, sink); }

 private:
  void run(size_t step, std::string_view text, RegexScratch& scratch, WordSink sink) const;

  std::vector<std::shared_ptr<const Splitter>> steps_;
};

}  // namespace athanor
