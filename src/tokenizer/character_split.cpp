#include "tokenizer/character_split.h"

#include "tokenizer/split_rule.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

bool is_digit(uint32_t c) {
  static const CodePointSet digits(kDigitRanges);
  return digits.contains(c);
}

bool is_punctuation(uint32_t c) {
  static const CodePointSet punctuation(kPunctuationRanges);
  return punctuation.contains(c);
}

// Cuts at every character of a kind.
template <class IsMatch>
class CharacterSplit : public Splitter {
 public:
  CharacterSplit(IsMatch is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}

  void split(std::string_view text, RegexScratch&, WordSink sink) const override {
    PieceJoiner joiner(text, behavior_, sink);
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const auto [c, length] = decode_utf8(&text[at]);
      if (is_match_(c)) {
        if (at > done) joiner.take(done, at, false);
        done = at + length;
        joiner.take(at, done, true);
      }
      at += length;
    }
    if (done < text.size()) joiner.take(done, text.size(), false);
    joiner.flush();
  }

 private:
  IsMatch is_match_;
  SplitBehavior behavior_;
};

template <class IsMatch>
std::shared_ptr<const Splitter> cut_where(IsMatch is_match, SplitBehavior behavior) {
  return std::make_shared<CharacterSplit<IsMatch>>(is_match, behavior);
}

enum class RunClass { kDropped, kAlone, kWord, kOther };

// Cuts into runs of characters of a class. Characters of class kDropped are removed; each character of class kAlone is
// a piece.
template <class ClassOf>
class RunSplit : public Splitter {
 public:
  explicit RunSplit(ClassOf class_of) : class_of_(class_of) {}

  void split(std::string_view text, RegexScratch&, WordSink sink) const override {
    size_t begin = 0;
    auto run = RunClass::kDropped;
    for (size_t at = 0; at < text.size();) {
      const auto [c, length] = decode_utf8(&text[at]);
      const auto next = class_of_(c);
      if (next != run || next == RunClass::kAlone) {
        if (run != RunClass::kDropped) sink(text.substr(begin, at - begin));
        begin = at;
        run = next;
      }
      at += length;
    }
    if (run != RunClass::kDropped) sink(text.substr(begin));
  }

 private:
  ClassOf class_of_;
};

template <class ClassOf>
std::shared_ptr<const Splitter> cut_into_runs(ClassOf class_of) {
  return std::make_shared<RunSplit<ClassOf>>(class_of);
}

class FixedLength : public Splitter {
 public:
  explicit FixedLength(uint64_t length) : length_(length) {}

  void split(std::string_view text, RegexScratch&, WordSink sink) const override {
    size_t begin = 0;
    uint64_t count = 0;
    for (size_t at = 0; at < text.size(); at += decode_utf8(&text[at]).num_bytes) {
      if (count == length_) {
        sink(text.substr(begin, at - begin));
        begin = at;
        count = 0;
      }
      ++count;
    }
    sink(text.substr(begin));
  }

 private:
  uint64_t length_;
};

uint32_t one_character(const JsonNode& node) {
  const auto& text = node.as_string();
  if (text.empty() || decode_utf8(text.data()).num_bytes != text.size()) {
    node.complain("expected one character, found \"{}\"", text);
  }
  return decode_utf8(text.data()).code_point;
}

}  // namespace

std::shared_ptr<const Splitter> parse_character_split(const std::string& type, const JsonNode& node) {
  if (type == "Digits") {
    return cut_where(is_digit,
                     node.bool_or("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    return cut_where(is_punctuation, behavior ? parse_split_behavior(*behavior) : SplitBehavior::kIsolated);
  }
  if (type == "WhitespaceSplit") return cut_where(is_space, SplitBehavior::kRemoved);
  if (type == "CharDelimiterSplit") {
    return cut_where([delimiter = one_character(node.at("delimiter"))](uint32_t c) { return c == delimiter; },
                     SplitBehavior::kRemoved);
  }
  if (type == "Whitespace") {  // \w+|[^\w\s]+
    return cut_into_runs([](uint32_t c) {
      return is_word(c) ? RunClass::kWord : is_space(c) ? RunClass::kDropped : RunClass::kOther;
    });
  }
  if (type == "BertPreTokenizer") {
    return cut_into_runs([](uint32_t c) {
      return is_space(c) ? RunClass::kDropped : is_punctuation(c) ? RunClass::kAlone : RunClass::kWord;
    });
  }
  if (type == "FixedLength") {
    const auto length = node.find("length");
    const auto count = length ? length->as_unsigned(uint64_t{1} << 32) : 5;
    if (count == 0) length->complain("expected at least 1");
    return std::make_shared<FixedLength>(count);
  }
  return nullptr;
}

}  // namespace athanor::inline tokenizer
