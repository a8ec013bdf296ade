#include "tokenizer/byte_level.h"

#include <array>

#include "base/text.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

constexpr uint32_t kFirstStandIn = 0x100;
constexpr uint32_t kNumStandIns = 68;  // 256 bytes less 94 of ASCII, 12 of A1-AC and 82 of AE-FF

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> code_points{};
  std::array<int16_t, kFirstStandIn + kNumStandIns> bytes{};  // -1: no byte
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.bytes) byte = -1;
  uint32_t stand_in = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t c = stands_for_itself(byte) ? static_cast<uint32_t>(byte) : stand_in++;
    alphabet.code_points[byte] = static_cast<uint16_t>(c);
    alphabet.bytes[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

uint32_t code_point_of_byte(uint8_t byte) { return kAlphabet.code_points[byte]; }

std::optional<std::string> bytes_from_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const auto [c, length] = decode_utf8(token.data() + at);
    if (c >= kAlphabet.bytes.size() || kAlphabet.bytes[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.bytes[c]);
    at += length;
  }
  return bytes;
}

std::string alphabet_from_bytes(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) append_utf8(token, code_point_of_byte(static_cast<uint8_t>(byte)));
  return token;
}

}  // namespace athanor::inline tokenizer
