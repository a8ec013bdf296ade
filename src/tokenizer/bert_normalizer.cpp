// The normalizer "BertNormalizer" removes control characters, makes all spaces plain, puts spaces around Chinese
// characters, and removes accents and capitals.

#include "base/text.h"
#include "tokenizer/normalizer_steps.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

namespace athanor::inline tokenizer {
namespace {

constexpr CodePointRange kChineseRanges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                             {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                             {0x2F800, 0x2FA1F}};

class BertNormalizer : public NormalizerStep {
 public:
  BertNormalizer(bool clean, bool chinese, bool accents, bool lower)
      : clean_(clean), chinese_(chinese), accents_(accents), lower_(lower) {}

  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    std::string result(text), decomposed;
    if (clean_) result = cleaned(result);
    if (chinese_) result = with_chinese_alone(result);
    if (accents_) result = without_accents(normalize_unicode(UnicodeForm::kNfd, result, decomposed));
    storage.clear();
    if (lower_) {
      append_lowercase(storage, result);
    } else {
      storage = std::move(result);
    }
    return storage;
  }

 private:
  // Calls `append(out, code point, its bytes)` for each character.
  template <class Append>
  static std::string each(std::string_view text, Append&& append) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const auto [c, length] = decode_utf8(&text[at]);
      append(out, c, text.substr(at, length));
      at += length;
    }
    return out;
  }

  static std::string cleaned(std::string_view text) {
    static const CodePointSet controls(kBertControlRanges);
    return each(text, [](std::string& out, uint32_t c, std::string_view bytes) {
      if (!controls.contains(c)) out += is_space(c) ? " " : bytes;
    });
  }

  static std::string with_chinese_alone(std::string_view text) {
    return each(text, [](std::string& out, uint32_t c, std::string_view bytes) {
      const bool alone = in_ranges(kChineseRanges, c);
      if (alone) out += ' ';
      out += bytes;
      if (alone) out += ' ';
    });
  }

  static std::string without_accents(std::string_view text) {
    static const CodePointSet accents(kBertAccentRanges);
    return each(text, [](std::string& out, uint32_t c, std::string_view bytes) {
      if (!accents.contains(c)) out += bytes;
    });
  }

  bool clean_, chinese_, accents_, lower_;
};

}  // namespace

std::shared_ptr<const NormalizerStep> parse_bert_normalizer(const JsonNode& node) {
  const bool lower = node.at("lowercase").as_bool();
  return std::make_shared<BertNormalizer>(node.at("clean_text").as_bool(), node.at("handle_chinese_chars").as_bool(),
                                          node.bool_or("strip_accents", lower), lower);
}

}  // namespace athanor::inline tokenizer
