#pragma once
// The regular expressions of tokenizer.json: Oniguruma's language, matched by PCRE2 (with JIT if available).
//
// The two languages agree on the constructs that such files use, except for the meaning of classes: \s, \w, \p{L},
// \p{N} are rewritten to Oniguruma's meaning, with the Unicode version of `tokenizers`. Constructs that could have
// another meaning are refused.

#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace athanor::inline tokenizer {

/// Working memory of one thread for matching; any pattern may use it.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* match_ = nullptr;
  pcre2_real_match_context_8* context_ = nullptr;
  pcre2_real_jit_stack_8* stack_ = nullptr;
};

class Regex {
 public:
  struct Match {
    size_t begin, end;
  };

  /// @throws DataError naming the part of the pattern that is not supported, or the byte at which it is wrong.
  explicit Regex(std::string_view pattern);

  /// Finds the first match in `text` (well-formed UTF-8) at `from` or later; returns false if there is none.
  /// @throws DataError if the pattern exceeds the engine's limits on this text.
  bool find(std::string_view text, size_t from, RegexScratch& scratch, Match& match) const;

 private:
  std::string pattern_;
  std::shared_ptr<pcre2_real_code_8> code_;
  bool jit_ = false;
};

/// Returns a pattern that matches exactly `literal`.
std::string escape_regex(std::string_view literal);

}  // namespace athanor::inline tokenizer
