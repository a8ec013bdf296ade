#include "documents/json_scan.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/text.h"

namespace athanor {
namespace {

constexpr int kMaxDepth = 64;
// Shorter numbers without exponent are finite.
constexpr size_t kMaxNumberBytes = 40;

// Marks which of eight bytes are `wanted`, by their highest bits. Only the lowest mark is sure to be right, and only
// that is used.
constexpr uint64_t kOnes = 0x0101010101010101ull, kHighs = 0x8080808080808080ull;
uint64_t bytes_equal(uint64_t bytes, unsigned char wanted) {
  const uint64_t zero_where = bytes ^ (kOnes * wanted);
  return (zero_where - kOnes) & ~zero_where & kHighs;
}
uint64_t bytes_below(uint64_t bytes, unsigned char limit) { return (bytes - kOnes * limit) & ~bytes & kHighs; }

// Each step returns whether the text follows the grammar of JSON.
class Scanner {
 public:
  Scanner(std::string_view json, std::string_view field) : at_(json.data()), end_(at_ + json.size()), field_(field) {}

  std::optional<std::string> run() {
    skip_blanks();
    if (!object(0)) return std::nullopt;
    skip_blanks();
    if (at_ != end_ || times_ != 1) return std::nullopt;
    return std::move(text_);
  }

 private:
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  bool object(int depth) {
    if (!take('{')) return false;
    skip_blanks();
    if (take('}')) return true;
    do {
      skip_blanks();
      const char* key = at_ + 1;
      if (!take('"') || !plain_run() || !take('"')) return false;  // a key with an escape is unusual
      const bool wanted = depth == 0 && std::string_view(key, static_cast<size_t>(at_ - 1 - key)) == field_;
      skip_blanks();
      if (!take(':')) return false;
      skip_blanks();
      if (wanted) {
        ++times_;
        if (times_ > 1 || !take('"') || !string(&text_)) return false;
      } else if (!value(depth + 1)) {
        return false;
      }
      skip_blanks();
    } while (take(','));
    return take('}');
  }

  bool array(int depth) {
    if (!take('[')) return false;
    skip_blanks();
    if (take(']')) return true;
    do {
      skip_blanks();
      if (!value(depth + 1)) return false;
      skip_blanks();
    } while (take(','));
    return take(']');
  }

  bool value(int depth) {
    if (at_ == end_ || depth > kMaxDepth) return false;
    switch (*at_) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': ++at_; return string(nullptr);
      case 't': return literal("true");
      case 'f': return literal("false");
      case 'n': return literal("null");
      default: return number();
    }
  }

  bool literal(std::string_view word) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool digits() {
    const char* begin = at_;
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ > begin;
  }
  bool number() {
    const char* begin = at_;
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    const bool has_exponent = at_ < end_ && (*at_ == 'e' || *at_ == 'E');
    return !has_exponent && static_cast<size_t>(at_ - begin) <= kMaxNumberBytes;
  }

  // Moves to a quote, a backslash or the end; returns false at a control character or the end.
  bool plain_run() {
    for (uint64_t bytes; end_ - at_ >= 8; at_ += 8) {
      std::memcpy(&bytes, at_, 8);
      const uint64_t found = bytes_equal(bytes, '"') | bytes_equal(bytes, '\\') | bytes_below(bytes, 0x20);
      if (found == 0) continue;
      at_ += std::countr_zero(found) / 8;
      return static_cast<unsigned char>(*at_) >= 0x20;
    }
    while (at_ < end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) ++at_;
    return at_ < end_ && static_cast<unsigned char>(*at_) >= 0x20;
  }

  // Reads a string after its opening quote; appends it to `out` if that is given.
  bool string(std::string* out) {
    for (;;) {
      const char* begin = at_;
      if (!plain_run()) return false;
      if (out) out->append(begin, at_);
      if (take('"')) return true;
      ++at_;
      if (!escape(out)) return false;
    }
  }

  // Reads an escape after its backslash.
  bool escape(std::string* out) {
    if (at_ == end_) return false;
    const char c = *at_++;
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = kNames.find(c); i != kNames.npos) {
      if (out) out->push_back(kMeanings[i]);
      return true;
    }
    uint32_t code_point = 0;
    if (c != 'u' || !hexadecimal(code_point)) return false;
    if (code_point >= 0xD800 && code_point < 0xE000) {
      uint32_t low = 0;
      if (code_point >= 0xDC00 || !take('\\') || !take('u') || !hexadecimal(low)) return false;
      if (low < 0xDC00 || low >= 0xE000) return false;
      code_point = 0x10000 + ((code_point & 0x3FF) << 10 | (low & 0x3FF));
    }
    if (out) append_utf8(*out, code_point);
    return true;
  }
  bool hexadecimal(uint32_t& value) {
    if (end_ - at_ < 4) return false;
    for (int i = 0; i < 4; ++i) {
      const char c = *at_++;
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9')
        value = value << 4 | static_cast<uint32_t>(c - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = value << 4 | static_cast<uint32_t>(lower - 'a' + 10);
      else
        return false;
    }
    return true;
  }

  const char* at_;
  const char* end_;
  std::string_view field_;
  std::string text_;
  int times_ = 0;
};

}  // namespace

std::optional<std::string> scan_json_text(std::string_view json, std::string_view field) {
  return Scanner(json, field).run();
}

}  // namespace athanor
