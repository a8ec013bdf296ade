#pragma once
// The tokens of all files as one long stream that lies on disk, written in any order and read at any place.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace athanor {

/// Chunks are appended to one file, the spill, as they come, by any thread; their order in the stream is that of their
/// keys (file, chunk). So nothing waits for its turn, memory holds only the table of chunks, and the stream is the same
/// whoever wrote it. The spill stays when the object goes: a later one may adopt its chunks.
class TokenStream {
 public:
  /// Where a chunk lies in the spill, and a hash of its bytes there.
  struct Place {
    uint64_t offset = 0, hash = 0;
  };
  /// What the table of chunks takes for each.
  static constexpr uint64_t kTableBytes = 40;

  /// Opens or creates `path`. @param item_bytes  2 or 4: what a token takes.
  TokenStream(std::filesystem::path path, int item_bytes);
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  /// Thread-safe. Each key once; ids fit into item_bytes. @throws IoError.
  Place append(uint32_t file, uint32_t chunk, std::span<const uint32_t> tokens);
  /// Takes a chunk that an earlier process appended into the stream. Before the first append().
  void adopt(uint32_t file, uint32_t chunk, uint32_t num_tokens, Place place);
  /// Whether the spill holds a chunk there, byte for byte.
  bool is_whole(uint32_t num_tokens, Place place) const;
  /// Waits until the disk has what was appended. Thread-safe.
  void sync() const;

  /// Ends the writing; from now on the stream may be read.
  void finish();
  int64_t num_tokens() const { return num_tokens_; }
  /// A hash of the whole stream, after finish().
  std::string digest() const;
  /// Tokens [first, first + count) to `out`, item_bytes each. Thread-safe after finish(). @throws IoError.
  void copy(int64_t first, int64_t count, std::byte* out) const;

  /// Whether the spill has all chunks, adopted ones too: an earlier process may have called remove().
  bool has_spill() const { return !missing_; }
  /// Gives the spill's disk space back; nothing can be copied any more.
  void remove();

 private:
  struct Chunk {
    uint32_t file, chunk;
    uint32_t num_tokens;
    int64_t first_token;  // its place in the stream, known after finish()
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

}  // namespace athanor
