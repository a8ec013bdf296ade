#pragma once
// Content hashes: XXH3 with 128 bits, as 32 hexadecimal digits. They detect damage, not malice.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/file_reader.h"

namespace athanor {

/// A hash as four numbers: eight hexadecimal digits each, in the order of the text.
using HashWords = std::array<uint32_t, 4>;

/// Returns the 32 digits of a hash.
std::string hash_text(const HashWords& words);

class Hasher {
 public:
  Hasher();
  ~Hasher();
  void update(const void* data, size_t num_bytes);
  /// Returns the hash of all bytes so far; more may follow.
  std::string hex() const;
  HashWords words() const;
  /// Forgets all bytes.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(const void* data, size_t num_bytes);
inline std::string hash_hex(std::string_view text) { return hash_hex(text.data(), text.size()); }

/// Returns the hash of a whole file. Calls `worked` after each block with the bytes of that block.
/// @throws IoError naming the byte that cannot be read.
std::string hash_file(const std::filesystem::path& path, const Worked& worked = {});

/// Returns a 64-bit hash for keys (random streams, hash tables), stable over versions and machines.
uint64_t hash_u64(std::string_view text, uint64_t seed = 0);

}  // namespace athanor
