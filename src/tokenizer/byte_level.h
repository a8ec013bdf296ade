#pragma once
// The byte-level alphabet: each byte is written as one printable character, so that a vocabulary can be stored as JSON.
//
// Printable Latin-1 characters represent their own byte; the 68 other bytes, in order, are U+0100, U+0101, ...

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace athanor::inline tokenizer {

/// Returns the code point that represents `byte`.
uint32_t code_point_of_byte(uint8_t byte);

/// Converts text in the alphabet to its bytes, for example "Ġthe" to " the"; none if a character is not in the
/// alphabet.
std::optional<std::string> bytes_from_alphabet(std::string_view token);

/// Converts any bytes to the alphabet, for example " the" to "Ġthe".
std::string alphabet_from_bytes(std::string_view bytes);

}  // namespace athanor::inline tokenizer
