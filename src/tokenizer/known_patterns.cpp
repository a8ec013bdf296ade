#include "tokenizer/known_patterns.h"

#include <span>

#include "tokenizer/word_scanner.h"

namespace athanor::inline tokenizer {
namespace {

using Contractions = WordRule::Contractions;
using Lead = WordRule::Lead;

template <WordRule kRule>
void cut(std::string_view text, WordSink sink) {
  const WordScanner<kRule> scanner(text);
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = scanner.word_end(at);
    if (end == at) {  // the gap grows by this character
      at += decode_utf8(text.data() + at).num_bytes;
      continue;
    }
    if (at > done) sink(text.substr(done, at - done));
    sink(text.substr(at, end - at));
    done = at = end;
  }
  if (done < text.size()) sink(text.substr(done));
}

// \p{N}{1,n}
template <size_t kMaxDigits>
void cut_numbers(std::string_view text, WordSink sink) {
  const auto& kinds = CharKinds::get();
  size_t done = 0, count = 0;  // count: digits of the match that begins at `done`
  for (size_t at = 0; at < text.size();) {
    const auto c = decode_utf8(text.data() + at);
    const bool is_number = kinds.of(c.code_point) & kind::kNumber;
    if (is_number ? count % kMaxDigits == 0 : count > 0) {
      if (at > done) sink(text.substr(done, at - done));
      done = at;
      count = 0;
    }
    count += is_number;
    at += c.num_bytes;
  }
  if (done < text.size()) sink(text.substr(done));
}

// [一-龥぀-ゟ゠-ヿ]+
void cut_cjk_runs(std::string_view text, WordSink sink) {
  size_t done = 0;
  bool in_run = false;
  for (size_t at = 0; at < text.size();) {
    const auto [c, length] = decode_utf8(text.data() + at);
    const bool is_cjk = (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
    if (is_cjk != in_run) {
      if (at > done) sink(text.substr(done, at - done));
      done = at;
      in_run = is_cjk;
    }
    at += length;
  }
  if (done < text.size()) sink(text.substr(done));
}

constexpr WordRule kCl100k{.contractions = Contractions::kAnyCaseFirst};
constexpr WordRule kQwen2{.contractions = Contractions::kAnyCaseFirst, .max_digits = 1};
constexpr WordRule kQwen35{.contractions = Contractions::kAnyCaseFirst,
                           .letters = kind::kLetter | kind::kMark,
                           .max_digits = 1,
                           .no_signs = kind::kMark};
constexpr WordRule kDeepSeek{.lead = Lead::kNotLetterSign,
                             .letters = kind::kLetter | kind::kMark,
                             .max_digits = WordRule::kNoDigits,
                             .signs = kind::kSign,
                             .sign_before_ascii = true};
constexpr WordRule kO200k{.contractions = Contractions::kAnyCaseLast, .by_case = true, .slashes_after_signs = true};
constexpr WordRule kTekken{.by_case = true, .max_digits = 1, .slashes_after_signs = true};

// Parts that several patterns share.
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CAPITALS R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define SMALL R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LEAD R"([^\r\n\p{L}\p{N}]?)"
#define SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define SIGNS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define SIGNS_AND_SLASHES R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"

constexpr KnownPattern kPatterns[] = {
    {"gpt2", kGpt2Pattern, cut<kGpt2Words>, false},
    {"llama3", CONTRACTIONS "|" LEAD R"(\p{L}+|\p{N}{1,3})" SIGNS SPACES, cut<kCl100k>, false},
    {"cl100k",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     cut<kCl100k>, false},
    {"qwen2", CONTRACTIONS "|" LEAD R"(\p{L}+|\p{N})" SIGNS SPACES, cut<kQwen2>, false},
    {"qwen3.5", CONTRACTIONS "|" LEAD R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" SPACES, cut<kQwen35>,
     false},
    {"deepseek",
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" SPACES,
     cut<kDeepSeek>, true},
    {"o200k",
     LEAD CAPITALS "*" SMALL "+" CONTRACTIONS "?|" LEAD CAPITALS "+" SMALL "*" CONTRACTIONS
                   R"(?|\p{N}{1,3})" SIGNS_AND_SLASHES SPACES,
     cut<kO200k>, false},
    {"tekken", LEAD CAPITALS "*" SMALL "+|" LEAD CAPITALS "+" SMALL R"(*|\p{N})" SIGNS_AND_SLASHES SPACES, cut<kTekken>,
     false},
    {"numbers by three", R"(\p{N}{1,3})", cut_numbers<3>, true},
    {"numbers", R"(\p{N})", cut_numbers<1>, true},
    {"cjk", "[一-龥\u3040-ゟ゠-ヿ]+", cut_cjk_runs, true},
};

}  // namespace

const KnownPattern* find_known_pattern(std::string_view pattern) {
  for (const auto& known : kPatterns) {
    if (known.pattern == pattern) return &known;
  }
  return nullptr;
}

std::span<const KnownPattern> known_patterns() { return kPatterns; }

size_t gpt2_word_end(std::string_view text, size_t begin) { return WordScanner<kGpt2Words>(text).word_end(begin); }

}  // namespace athanor::inline tokenizer
