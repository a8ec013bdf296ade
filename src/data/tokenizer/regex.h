#pragma once
// The regular expressions of tokenizer.json: Oniguruma's language, matched by PCRE2 (JIT where it can).
//
// The two languages agree on what such files use, except for what a class means: \s, \w, \p{L}, \p{N} are rewritten to
// Oniguruma's meaning, with the Unicode version of `tokenizers`. What could mean something else is refused.

#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace athanor {

/// What one thread needs to match; any pattern may use it.
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

  /// @throws DataError saying what of the pattern is not supported, or at which byte it is wrong.
  explicit Regex(std::string_view pattern);

  /// The first match in `text` (well-formed UTF-8) at `from` or later; false if there is none.
  /// @throws DataError where the pattern needs more than the engine's limits on this text.
  bool find(std::string_view text, size_t from, RegexScratch& scratch, Match& match) const;

 private:
  std::string pattern_;
  std::shared_ptr<pcre2_real_code_8> code_;
  bool jit_ = false;
};

/// `literal` as a pattern that matches just it.
std::string escape_regex(std::string_view literal);

}  // namespace athanor
