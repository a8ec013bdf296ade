#pragma once
// The tokens of all files as one long stream on disk, written in any order and read at any position.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace athanor::inline preparation {

/// Any thread appends chunks to one file, the spill, as they are finished; their order in the stream is the order of
/// their keys (file, chunk). So no thread waits for another, memory holds only the table of chunks, and the stream does
/// not depend on which thread wrote which chunk. The spill remains when the object is destroyed: a later object may
/// adopt its chunks.
class TokenStream {
 public:
  /// The offset of a chunk in the spill, and a hash of its bytes there.
  struct Place {
    uint64_t offset = 0, hash = 0;
  };
  /// Memory that the table of chunks takes for each chunk.
  static constexpr uint64_t kTableBytes = 40;

  /// Opens or creates the spill at `path`.
  /// @param item_bytes  bytes per token, 2 or 4.
  TokenStream(std::filesystem::path path, int item_bytes);
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  /// Appends a chunk. Thread-safe. Each key may be used once; ids must fit into item_bytes. @throws IoError.
  Place append(uint32_t file, uint32_t chunk, std::span<const uint32_t> tokens);
  /// Takes into the stream a chunk that an earlier process appended. Must be called before the first append().
  void adopt(uint32_t file, uint32_t chunk, uint32_t num_tokens, Place place);
  /// True if the spill holds the chunk at `place`, byte for byte.
  bool is_whole(uint32_t num_tokens, Place place) const;
  /// Waits until the disk has all appended chunks. Thread-safe.
  void sync() const;

  /// Puts the chunks that the stream has so far into order; then the functions below may be called, until a chunk is
  /// appended. After that, finish() has to be called again.
  void finish();
  int64_t num_tokens() const { return num_tokens_; }
  /// Returns a hash of the whole stream, computed from the chunks' lengths and hashes.
  std::string digest() const;
  /// Copies tokens [first, first + count) to `out`, item_bytes each. Thread-safe. @throws IoError.
  void copy(int64_t first, int64_t count, std::byte* out) const;

  /// True if the spill has all chunks, adopted ones too. It is false after remove(), also that of an earlier process.
  bool has_spill() const { return !missing_; }
  /// Frees the spill's disk space; nothing can be copied afterwards.
  void remove();

 private:
  struct Chunk {
    uint32_t file, chunk;
    uint32_t num_tokens;
    int64_t first_token;  // position in the stream, known after finish()
    Place place;
  };
  static_assert(sizeof(Chunk) == kTableBytes);

  std::filesystem::path path_;
  int item_bytes_, fd_;
  std::mutex mutex_;
  uint64_t num_bytes_ = 0, bytes_at_open_ = 0;
  bool missing_ = false;
  int64_t num_tokens_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace athanor::inline preparation
