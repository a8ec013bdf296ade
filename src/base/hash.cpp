#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/core.h>

#include "base/files.h"

namespace athanor {
namespace {

std::string to_hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

struct Hasher::State {
  XXH3_state_t value;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->value); }
Hasher::~Hasher() = default;
void Hasher::update(const void* data, size_t num_bytes) { XXH3_128bits_update(&state_->value, data, num_bytes); }
std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(&state_->value)); }

std::string hash_hex(const void* data, size_t num_bytes) { return to_hex(XXH3_128bits(data, num_bytes)); }

std::string hash_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return hash_hex(file.data(), file.size());
}

uint64_t hash_u64(std::string_view text, uint64_t seed) { return XXH3_64bits_withSeed(text.data(), text.size(), seed); }

}  // namespace athanor
