#pragma once
// The tokens of all files as one long stream that lies on disk, written in any order and read at any place.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/files.h"

namespace athanor {

/// Chunks are appended to one file as they come, by any thread; their order in the stream is that of their keys
/// (file, chunk). So nothing waits for its turn, memory holds only the table of chunks, and the stream is the same
/// whoever wrote it.
class TokenStream {
 public:
  /// Creates `path`; the destructor removes it. @param item_bytes  2 or 4: what a token takes.
  TokenStream(std::filesystem::path path, int item_bytes);
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  /// Thread-safe. Each key once; ids fit into item_bytes. @throws IoError.
  void append(uint64_t file, uint64_t chunk, std::span<const uint32_t> tokens);

  /// Ends the writing; from now on the stream may be read.
  void finish();

  int64_t num_tokens() const { return num_tokens_; }
  /// Tokens [first, first + count) to `out`, item_bytes each. Thread-safe after finish().
  void copy(int64_t first, int64_t count, std::byte* out) const;

 private:
  struct Chunk {
    uint64_t file, chunk;
    int64_t num_tokens, first_token;  // first_token: its place in the stream, known after finish()
    uint64_t byte_offset;
  };

  std::filesystem::path path_;
  int item_bytes_, fd_;
  std::mutex mutex_;
  uint64_t num_bytes_ = 0;
  int64_t num_tokens_ = 0;
  std::vector<Chunk> chunks_;
  std::optional<MappedFile> mapped_;
};

}  // namespace athanor
