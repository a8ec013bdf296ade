#include "tokenizer/normalizer_steps.h"

#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

namespace athanor::inline tokenizer {
namespace {

class Form : public NormalizerStep {
 public:
  explicit Form(UnicodeForm form) : form_(form) {}
  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    return normalize_unicode(form_, text, storage);
  }

 private:
  UnicodeForm form_;
};

class Lowercase : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    storage.clear();
    append_lowercase(storage, text);
    return storage;
  }
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::string_view apply(std::string_view text, RegexScratch&, std::string&) const override {
    size_t begin = 0, end = 0;  // range of the text that is not space
    bool any = false;
    for (size_t at = 0; at < text.size();) {
      const auto [c, length] = decode_utf8(&text[at]);
      if (!is_space(c)) {
        if (!any) begin = at;
        any = true;
        end = at + length;
      }
      at += length;
    }
    if (!any && (left_ || right_)) return {};
    if (!left_) begin = 0;
    return text.substr(begin, (right_ ? end : text.size()) - begin);
  }

 private:
  bool left_, right_;
};

class StripAccents : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    static const CodePointSet accents(kAccentRanges);
    storage.clear();
    for (size_t at = 0; at < text.size();) {
      const auto [c, length] = decode_utf8(&text[at]);
      if (!accents.contains(c)) storage.append(text, at, length);
      at += length;
    }
    return storage;
  }
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    storage.assign(prefix_).append(text);
    return storage;
  }

 private:
  std::string prefix_;
};

class Replace : public NormalizerStep {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string_view apply(std::string_view text, RegexScratch& scratch, std::string& storage) const override {
    const size_t limit = max_normalized_bytes(text.size());
    storage.clear();
    size_t done = 0;
    pattern_.for_each_match(text, scratch, [&](size_t begin, size_t end) {
      ATHANOR_CHECK_DATA(storage.size() + content_.size() + (begin - done) <= limit,
                         "a Replace of the tokenizer's normalizer turns this text into more than {} bytes; correct it",
                         limit);
      storage.append(text, done, begin - done).append(content_);
      done = end;
    });
    storage.append(text, done);
    return storage;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class ByteAlphabet : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    storage = alphabet_from_bytes(text);
    return storage;
  }
};

// The cleaning of neural machine translation: removes controls, and turns unusual spaces into a plain space.
class Nmt : public NormalizerStep {
 public:
  std::string_view apply(std::string_view text, RegexScratch&, std::string& storage) const override {
    storage.clear();
    for (size_t at = 0; at < text.size();) {
      const auto [c, length] = decode_utf8(&text[at]);
      if (becomes_space(c)) {
        storage += ' ';
      } else if (!goes(c)) {
        storage.append(text, at, length);
      }
      at += length;
    }
    return storage;
  }

 private:
  static bool goes(uint32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
  static bool becomes_space(uint32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

}  // namespace

void append_lowercase(std::string& out, std::string_view text) {
  constexpr uint32_t kDottedCapitalI = 0x130;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      out += static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
      ++at;
      continue;
    }
    const auto [c, length] = decode_utf8(&text[at]);
    if (c == kDottedCapitalI) {
      out += "i\u0307";
    } else {
      append_utf8(out, lowercase(c));
    }
    at += length;
  }
}

std::shared_ptr<const NormalizerStep> parse_normalizer_step(const std::string& type, const JsonNode& node) {
  if (type == "NFC") return std::make_shared<Form>(UnicodeForm::kNfc);
  if (type == "NFD") return std::make_shared<Form>(UnicodeForm::kNfd);
  if (type == "NFKC") return std::make_shared<Form>(UnicodeForm::kNfkc);
  if (type == "NFKD") return std::make_shared<Form>(UnicodeForm::kNfkd);
  if (type == "Lowercase") return std::make_shared<Lowercase>();
  if (type == "Strip") {
    return std::make_shared<Strip>(node.at("strip_left").as_bool(), node.at("strip_right").as_bool());
  }
  if (type == "StripAccents") return std::make_shared<StripAccents>();
  if (type == "Prepend") return std::make_shared<Prepend>(node.at("prepend").as_string());
  if (type == "Replace") {
    return std::make_shared<Replace>(Pattern::parse(node.at("pattern")), node.at("content").as_string());
  }
  if (type == "ByteLevel") return std::make_shared<ByteAlphabet>();
  if (type == "Nmt") return std::make_shared<Nmt>();
  if (type == "BertNormalizer") return parse_bert_normalizer(node);
  return nullptr;
}

}  // namespace athanor::inline tokenizer
