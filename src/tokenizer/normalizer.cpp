#include "tokenizer/normalizer.h"

#include <memory>
#include <string>
#include <string_view>

#include "base/json_node.h"
#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/file_limits.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

namespace athanor::inline tokenizer {
namespace {

// The kinds that are supported.
constexpr std::string_view kNormalizerKinds =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, ByteLevel, Nmt, BertNormalizer, Sequence "
    "and null";

// Appends the lower case of every character.
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

// Parses BertNormalizer, BERT's basic cleaning of text.
std::shared_ptr<const NormalizerStep> parse_bert_normalizer(const JsonNode& node) {
  const bool lower = node.at("lowercase").as_bool();
  return std::make_shared<BertNormalizer>(node.at("clean_text").as_bool(), node.at("handle_chinese_chars").as_bool(),
                                          node.bool_or("strip_accents", lower), lower);
}

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

// Returns the step of kind `type` (not Sequence), or null if the kind is not known.
// @throws DataError by JSON path.
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

// Real files nest sequences one or two deep; a thousand would be an attack on the stack.
void append_steps(const JsonNode& node, int depth, std::vector<std::shared_ptr<const NormalizerStep>>& steps) {
  if (depth > kMaxNesting) node.complain("sequences are nested deeper than {}", kMaxNesting);
  const std::string type = node.at("type").as_string();
  if (type == "Sequence") {
    for (const auto& part : node.at("normalizers").elements()) append_steps(part, depth + 1, steps);
    return;
  }
  if (steps.size() == kMaxSteps) node.complain("more than {} normalizers", kMaxSteps);
  auto step = parse_normalizer_step(type, node);
  if (!step) {
    node.at("type").complain("the normalizer \"{}\" is not supported; {} are", type, kNormalizerKinds);
  }
  steps.push_back(std::move(step));
}

}  // namespace

Normalizer Normalizer::parse(const std::optional<JsonNode>& node) {
  Normalizer normalizer;
  if (node) append_steps(*node, 0, normalizer.steps_);
  return normalizer;
}

std::string_view Normalizer::apply(std::string_view text, RegexScratch& regex, Scratch& scratch) const {
  const size_t limit = max_normalized_bytes(text.size());
  int next = 0;  // the storage that `text` is not in
  for (const auto& step : steps_) {
    if (text.empty()) return text;  // an empty text stays empty, even with Prepend
    auto& storage = scratch.storage[next];
    text = step->apply(text, regex, storage);
    if (text.data() == storage.data()) next = 1 - next;
    ATHANOR_CHECK_DATA(text.size() <= limit,
                       "the tokenizer's normalizer turns this text into more than {} bytes; correct its rules", limit);
  }
  return text;
}

}  // namespace athanor::inline tokenizer
