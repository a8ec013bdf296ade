#include "staging/chunk.h"

#include <algorithm>
#include <cstring>

namespace athanor::staging {
namespace {

bool is_all_zero(const std::byte* bytes, uint64_t count) {
  return count > 0 && bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, count - 1) == 0;
}

}  // namespace

HashWords ChunkBuffer::compute_hash() const {
  Hasher hasher;
  hasher.update(memory_.get(), offsetof(ChunkHeader, hash));
  hasher.update(payload(), static_cast<size_t>(message_bytes()) - sizeof(ChunkHeader));
  return hasher.words();
}

void ChunkBuffer::seal(uint64_t chunk, uint64_t bytes) {
  header() = {};
  header().kind = is_all_zero(payload(), bytes) ? ChunkHeader::kZeros : ChunkHeader::kBytes;
  header().chunk = chunk;
  header().bytes = bytes;
  header().hash = compute_hash();
}

void ChunkBuffer::seal_stop(std::string_view reason) {
  reason = reason.substr(0, most_);
  std::memcpy(payload(), reason.data(), reason.size());
  header() = {};
  header().kind = ChunkHeader::kStop;
  header().bytes = reason.size();
  header().hash = compute_hash();
}

bool ChunkBuffer::is_intact(int64_t message_bytes) const {
  if (message_bytes < static_cast<int64_t>(sizeof(ChunkHeader))) return false;
  const ChunkHeader& head = header();
  if (head.magic != ChunkHeader::kMagic || head.kind > ChunkHeader::kStop || head.bytes > most_) return false;
  return message_bytes == this->message_bytes() && head.hash == compute_hash();
}

void ChunkBuffer::expand_zeros() {
  if (header().kind == ChunkHeader::kZeros) std::memset(payload(), 0, header().bytes);
}

}  // namespace athanor::staging
