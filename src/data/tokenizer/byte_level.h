#pragma once
// The byte-level alphabet: each byte is shown as one printable character, so that a vocabulary can be written as JSON.
//
// Printable Latin-1 characters stand for their own byte; the 68 other bytes, in order, are U+0100, U+0101, ...

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace athanor {

/// The code point that stands for `byte`.
uint32_t code_point_of_byte(uint8_t byte);

/// "Ġthe" → " the"; none if a character is not of the alphabet.
std::optional<std::string> bytes_from_alphabet(std::string_view token);

/// " the" → "Ġthe".
std::string alphabet_from_bytes(std::string_view bytes);

}  // namespace athanor
