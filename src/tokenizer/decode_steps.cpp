#include "tokenizer/decode_steps.h"

#include <optional>
#include <utility>

#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != text.npos && !from.empty(); at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return out.append(text, done);
}

// A step that looks at tokens as a whole.
class WholeTokens : public DecodeStep {
 public:
  void push(TokenPart part) final {
    if (part.begins && part.ends) return take(part.text);
    if (part.begins) token_.clear();
    token_ += part.text;
    if (part.ends) take(token_);
  }

 protected:
  virtual void take(std::string_view token) = 0;

 private:
  std::string token_;
};

class Fuse : public DecodeStep {
 public:
  void push(TokenPart part) override { next_->push({part.text, std::exchange(begins_, false), false}); }
  void finish() override {
    next_->push({"", begins_, true});
    next_->finish();
  }

 private:
  bool begins_ = true;
};

// Converts bytes in their alphabet to text; the result is one token.
class Bytes : public WholeTokens {
 public:
  void finish() override {
    std::string text;
    append_utf8_lossy(text, bytes_);
    next_->push({text, begins_, true});
    next_->finish();
  }

 protected:
  void take(std::string_view token) override {
    bytes_ += bytes_from_alphabet(token).value_or(std::string(token));
    const size_t certain = bytes_.size() - unfinished_utf8_suffix(bytes_);
    std::string text;
    append_utf8_lossy(text, std::string_view(bytes_).substr(0, certain));
    bytes_.erase(0, certain);
    next_->push({text, std::exchange(begins_, false), false});
  }

 private:
  std::string bytes_;
  bool begins_ = true;
};

// <0xE3> means a byte. Each byte of a run that is not text becomes U+FFFD, so the whole run must be read first.
class ByteFallback : public WholeTokens {
 public:
  void finish() override {
    flush();
    next_->finish();
  }

 protected:
  void take(std::string_view token) override {
    if (const auto byte = byte_of(token)) {
      run_ += *byte;
      return;
    }
    flush();
    next_->push({token});
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    const auto digit = [&](size_t i) {
      const char c = token[i];
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return -1;
    };
    if (token[3] == '+' && digit(4) >= 0) return static_cast<char>(digit(4));  // as `tokenizers` reads numbers
    if (digit(3) < 0 || digit(4) < 0) return std::nullopt;
    return static_cast<char>(digit(3) * 16 + digit(4));
  }

  void flush() {
    if (run_.empty()) return;
    if (!find_invalid_utf8(run_)) {
      next_->push({run_});
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_->push({"\uFFFD"});
    }
    run_.clear();
  }

  std::string run_;
};

// Turns ▁ into a space; in the first token into nothing, if the pre-tokenizer put one before the text.
class MetaspaceToSpace : public DecodeStep {
 public:
  explicit MetaspaceToSpace(const Metaspace& metaspace) : metaspace_(metaspace) {}

  void push(TokenPart part) override {
    const bool drops = is_first_ && metaspace_.prepend != PrependScheme::kNever;
    next_->push({replaced(part.text, metaspace_.replacement, drops ? "" : " "), part.begins, part.ends});
    if (part.ends) is_first_ = false;
  }

 private:
  Metaspace metaspace_;
  bool is_first_ = true;
};

class ReplaceInToken : public WholeTokens {
 public:
  ReplaceInToken(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

 protected:
  void take(std::string_view token) override {
    std::string out;
    size_t done = 0;
    pattern_.for_each_match(token, scratch_, [&](size_t begin, size_t end) {
      out.append(token, done, begin - done).append(content_);
      done = end;
    });
    next_->push({out.append(token, done)});
  }

 private:
  Pattern pattern_;
  std::string content_;
  RegexScratch scratch_;
};

// Removes characters from the start of each token, as they come.
class StripStart : public DecodeStep {
 public:
  StripStart(std::string content, uint64_t count) : content_(std::move(content)), count_(count) {}

  void push(TokenPart part) override {
    if (part.begins) left_ = count_;
    while (left_ > 0 && !part.text.empty()) {
      if (!part.text.starts_with(content_)) {
        left_ = 0;
        break;
      }
      part.text.remove_prefix(content_.size());
      --left_;
    }
    next_->push(part);
  }

 private:
  std::string content_;
  uint64_t count_, left_ = 0;
};

class StripBoth : public WholeTokens {
 public:
  StripBoth(std::string content, uint64_t start, uint64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

 protected:
  void take(std::string_view token) override {
    for (uint64_t i = 0; i < start_ && token.starts_with(content_); ++i) token.remove_prefix(content_.size());
    for (uint64_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.remove_suffix(content_.size());
    next_->push({token});
  }

 private:
  std::string content_;
  uint64_t start_, stop_;
};

// Turns the end of each word into a space, except the last.
class WordEnds : public WholeTokens {
 public:
  explicit WordEnds(std::string suffix) : suffix_(std::move(suffix)) {}

  void finish() override {
    if (last_) next_->push({replaced(*last_, suffix_, "")});
    next_->finish();
  }

 protected:
  void take(std::string_view token) override {
    if (last_) next_->push({replaced(*last_, suffix_, " ")});
    last_ = token;
  }

 private:
  std::string suffix_;
  std::optional<std::string> last_;
};

// A token without the prefix begins a word.
class WordPiece : public WholeTokens {
 public:
  WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

 protected:
  void take(std::string_view token) override {
    std::string text;
    if (is_first_ || !token.starts_with(prefix_)) {
      text = (is_first_ ? "" : " ") + std::string(token);
    } else {
      text = token.substr(prefix_.size());
    }
    is_first_ = false;
    if (cleanup_) clean(text);
    next_->push({text});
  }

 private:
  // Removes the spaces that tokenisation puts into English.
  static void clean(std::string& text) {
    static constexpr std::string_view kRules[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) text = replaced(text, from, to);
  }

  std::string prefix_;
  bool cleanup_, is_first_ = true;
};

DecodeStepMaker parse_strip(const JsonNode& node) {
  constexpr uint64_t kMaxCount = uint64_t{1} << 32;
  const auto content_node = node.at("content");
  const auto& content = content_node.as_string();
  if (content.empty() || decode_utf8(content.data()).num_bytes != content.size()) {
    content_node.complain("expected one character, found \"{}\"", content);
  }
  const auto start = node.at("start").as_unsigned(kMaxCount), stop = node.at("stop").as_unsigned(kMaxCount);
  if (stop == 0) return [=] { return std::make_unique<StripStart>(content, start); };
  return [=] { return std::make_unique<StripBoth>(content, start, stop); };
}

}  // namespace

DecodeStepMaker parse_decode_step(const std::string& type, const JsonNode& node) {
  if (type == "ByteLevel") return [] { return std::make_unique<Bytes>(); };
  if (type == "ByteFallback") return [] { return std::make_unique<ByteFallback>(); };
  if (type == "Fuse") return [] { return std::make_unique<Fuse>(); };
  if (type == "Strip") return parse_strip(node);
  if (type == "Metaspace") {
    return [metaspace = Metaspace::parse(node)] { return std::make_unique<MetaspaceToSpace>(metaspace); };
  }
  if (type == "Replace") {
    const auto pattern = Pattern::parse(node.at("pattern"));
    return [pattern, content = node.at("content").as_string()] {
      return std::make_unique<ReplaceInToken>(pattern, content);
    };
  }
  if (type == "BPEDecoder") {
    return [suffix = node.string_or("suffix", "</w>")] { return std::make_unique<WordEnds>(suffix); };
  }
  if (type == "WordPiece") {
    return [prefix = node.string_or("prefix", "##"), cleanup = node.bool_or("cleanup", true)] {
      return std::make_unique<WordPiece>(prefix, cleanup);
    };
  }
  return nullptr;
}

}  // namespace athanor::inline tokenizer
