#pragma once
// The contents of a manifest cut into chunks: a file of at least a chunk has its own chunks, and smaller ones share
// one, so that fifty thousand small files are no fifty thousand messages. All nodes compute the same table.
//
// The chunks of a long file depend on nothing but the file: if other files are added or removed, those of it that a
// node has stay valid.

#include <cstdint>
#include <utility>
#include <vector>

#include "staging/manifest.h"

namespace athanor::staging {

/// A part of a chunk: bytes of one file.
struct Piece {
  size_t entry;     ///< index in Manifest::entries
  uint64_t offset;  ///< in the file
  uint64_t bytes;
  uint64_t at;  ///< offset in the chunk
};

class ChunkTable {
 public:
  explicit ChunkTable(const Manifest& manifest);

  uint64_t size() const { return chunks_.size(); }  ///< number of chunks
  uint64_t bytes(uint64_t chunk) const { return chunks_[chunk].bytes; }
  uint64_t largest_bytes() const { return largest_; }
  std::vector<Piece> pieces(uint64_t chunk) const;
  /// Returns the chunks that have bytes of an entry: the first, and the one behind the last.
  std::pair<uint64_t, uint64_t> chunks_of(size_t entry) const { return of_entry_[entry]; }

 private:
  struct Chunk {
    size_t begin, end;  // entries; those without content are passed over
    uint64_t offset;    // in the only entry; 0 for several
    uint64_t bytes;
  };
  void add_long_file(size_t entry);
  void add_short_file(size_t entry);

  const Manifest& manifest_;
  std::vector<Chunk> chunks_;
  std::vector<std::pair<uint64_t, uint64_t>> of_entry_;
  uint64_t largest_ = 0;
  bool takes_more_ = false;  // the last chunk is one of short files
};

/// A set of chunks, one bit for each: what a node lacks.
class ChunkSet {
 public:
  explicit ChunkSet(uint64_t size = 0) : words_((size + 63) / 64) {}
  void add(uint64_t chunk) { words_[chunk / 64] |= uint64_t{1} << (chunk % 64); }
  void remove(uint64_t chunk) { words_[chunk / 64] &= ~(uint64_t{1} << (chunk % 64)); }
  bool has(uint64_t chunk) const { return (words_[chunk / 64] >> (chunk % 64) & 1) != 0; }
  void unite(const ChunkSet& other);
  std::vector<uint64_t> list() const;
  std::vector<uint64_t>& words() { return words_; }
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace athanor::staging
