#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/core.h>

namespace athanor {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;  // hashed while it is in the cache

std::string to_hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

struct Hasher::State {
  XXH3_state_t value;
};

std::string hash_text(const HashWords& words) {
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", words[0], words[1], words[2], words[3]);
}

Hasher::Hasher() : state_(std::make_unique<State>()) { reset(); }
Hasher::~Hasher() = default;
void Hasher::update(const void* data, size_t num_bytes) { XXH3_128bits_update(&state_->value, data, num_bytes); }
std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(&state_->value)); }
void Hasher::reset() { XXH3_128bits_reset(&state_->value); }

HashWords Hasher::words() const {
  const auto hash = XXH3_128bits_digest(&state_->value);
  return {static_cast<uint32_t>(hash.high64 >> 32), static_cast<uint32_t>(hash.high64),
          static_cast<uint32_t>(hash.low64 >> 32), static_cast<uint32_t>(hash.low64)};
}

std::string hash_hex(const void* data, size_t num_bytes) { return to_hex(XXH3_128bits(data, num_bytes)); }

std::string hash_file(const std::filesystem::path& path, const Worked& worked) {
  const FileReader file(path);
  const auto block = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
  Hasher hasher;
  for (uint64_t at = 0;;) {
    const size_t got = file.read_up_to(at, block.get(), kBlockBytes);
    if (got == 0) return hasher.hex();
    hasher.update(block.get(), got);
    at += got;
    if (worked) worked(static_cast<int64_t>(got));
  }
}

uint64_t hash_u64(std::string_view text, uint64_t seed) { return XXH3_64bits_withSeed(text.data(), text.size(), seed); }

}  // namespace athanor
