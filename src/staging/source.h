#pragma once
// What is sent, as the first node finds it: the list of it, and its contents. No other node touches the source.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "staging/chunk.h"
#include "staging/chunk_table.h"
#include "staging/file_facts.h"
#include "staging/manifest.h"

namespace athanor::staging {

struct Listing {
  Manifest manifest;
  std::vector<std::string> origins;  ///< the path of each entry at its source
};

/// Lists files and folders with all that is in them. A link that is named itself is followed, those below a folder are
/// kept. Archives (.tar, .tar.gz, .tgz, .tar.zst, .tzst, .tar.xz, .tar.bz2) that are named themselves are to be
/// unpacked.
/// @throws IoError for what cannot be read; ConfigError for two of the same name; DataError for devices, pipes and
///         sockets, and for links that leave the target folder.
Listing list_sources(const std::vector<std::string>& sources, bool unpack, uint64_t chunk_bytes);

/// Reads chunks. Any number of threads may read at the same time.
class SourceReader {
 public:
  SourceReader(const Listing& listing, const ChunkTable& table) : listing_(listing), table_(table) {}

  /// Fills a buffer with a chunk, and seals it. @throws IoError if it cannot be read; DataError if a file of the chunk
  /// is not the one that was listed.
  void read(uint64_t chunk, ChunkBuffer& buffer) const;

 private:
  std::shared_ptr<OpenedFile> open(size_t entry) const;

  const Listing& listing_;
  const ChunkTable& table_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<OpenedFile> latest_;  // the next chunk of a long file is read soon
  mutable size_t latest_entry_ = SIZE_MAX;
};

}  // namespace athanor::staging
