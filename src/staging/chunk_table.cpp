#include "staging/chunk_table.h"

#include <algorithm>
#include <bit>

namespace athanor::staging {

ChunkTable::ChunkTable(const Manifest& manifest) : manifest_(manifest), of_entry_(manifest.entries.size()) {
  for (size_t i = 0; i < manifest.entries.size(); ++i) {
    const Entry& entry = manifest.entries[i];
    if (!entry.has_content()) continue;
    entry.size >= manifest.chunk_bytes ? add_long_file(i) : add_short_file(i);
  }
  for (const Chunk& chunk : chunks_) largest_ = std::max(largest_, chunk.bytes);
}

void ChunkTable::add_long_file(size_t entry) {
  const uint64_t size = manifest_.entries[entry].size;
  of_entry_[entry].first = chunks_.size();
  for (uint64_t at = 0; at < size; at += manifest_.chunk_bytes)
    chunks_.push_back({entry, entry + 1, at, std::min(manifest_.chunk_bytes, size - at)});
  of_entry_[entry].second = chunks_.size();
  takes_more_ = false;
}

void ChunkTable::add_short_file(size_t entry) {
  const uint64_t size = manifest_.entries[entry].size;
  if (!takes_more_ || chunks_.back().bytes + size > manifest_.chunk_bytes) chunks_.push_back({entry, entry, 0, 0});
  takes_more_ = true;
  chunks_.back().end = entry + 1;
  chunks_.back().bytes += size;
  of_entry_[entry] = {chunks_.size() - 1, chunks_.size()};
}

std::vector<Piece> ChunkTable::pieces(uint64_t chunk) const {
  const Chunk& range = chunks_[chunk];
  std::vector<Piece> pieces;
  uint64_t at = 0;
  for (size_t i = range.begin; i < range.end; ++i) {
    if (!manifest_.entries[i].has_content()) continue;
    const uint64_t bytes = std::min(range.bytes - at, manifest_.entries[i].size - range.offset);
    pieces.push_back({i, range.offset, bytes, at});
    at += bytes;
  }
  return pieces;
}

void ChunkSet::unite(const ChunkSet& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

std::vector<uint64_t> ChunkSet::list() const {
  std::vector<uint64_t> chunks;
  for (size_t i = 0; i < words_.size(); ++i)
    for (uint64_t word = words_[i]; word != 0; word &= word - 1)
      chunks.push_back(i * 64 + static_cast<uint64_t>(std::countr_zero(word)));
  return chunks;
}

}  // namespace athanor::staging
