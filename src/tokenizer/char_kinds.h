#pragma once
// The properties of a character that the patterns of tokenizers test, as eight bits.

#include <array>
#include <cstdint>

namespace athanor::inline tokenizer {

namespace kind {
inline constexpr uint8_t kLetter = 1;    // \p{L}
inline constexpr uint8_t kNumber = 2;    // \p{N}
inline constexpr uint8_t kSpace = 4;     // \s
inline constexpr uint8_t kOther = 8;     // [^\s\p{L}\p{N}]
inline constexpr uint8_t kMark = 16;     // \p{M}
inline constexpr uint8_t kSign = 32;     // [\p{P}\p{S}]
inline constexpr uint8_t kCapital = 64;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr uint8_t kSmall = 128;   // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
}  // namespace kind

/// The kinds of all code points, as the patterns of `tokenizers` see them.
class CharKinds {
 public:
  /// Created at the first call (in some milliseconds) and shared by all threads.
  static const CharKinds& get();

  uint8_t of(uint32_t code_point) const { return kinds_[code_point]; }
  /// Returns the kinds of a byte below 0x80; other bytes have none.
  uint8_t of_byte(unsigned char byte) const { return bytes_[byte]; }

 private:
  CharKinds();
  std::array<uint8_t, 0x110000> kinds_{};  // usual text touches only a few cache lines of it
  std::array<uint8_t, 256> bytes_{};
};

}  // namespace athanor::inline tokenizer
