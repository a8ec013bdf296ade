#pragma once
// Keeps track of the chunks of the input files that have been tokenized, by an earlier call of prepare or by this one.

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "dataset/manifest.h"
#include "prepare/prepare_journal.h"
#include "prepare/token_stream.h"

namespace athanor::inline preparation {

/// Writes tokens to the stream and then records them in the journal. Thread-safe except for the constructor.
class TokenLedger {
 public:
  /// Takes over the journal's entries about files that have not changed. File i of the list is file i + 1 of the
  /// stream; file 0 of the stream is for tokens that precede all files.
  TokenLedger(std::vector<InputFile> files, TokenStream& stream, PrepareJournal& journal);

  const std::vector<InputFile>& files() const { return files_; }
  bool file_finished(size_t file) const { return states_[file].finished; }
  bool chunk_done(size_t file, uint32_t chunk) const;
  /// Must be called before the first chunk of a file that is not finished. @throws IoError
  void begin_file(size_t file);
  /// Adds a chunk that chunk_done() does not have. `counts.tokens` is not read. @throws IoError
  void add_chunk(size_t file, uint32_t chunk, std::span<const uint32_t> tokens, DocumentCounts counts);
  /// To be called once the whole file has been cut into `num_chunks` chunks; they may be added later.
  /// @throws DataError if the file has changed since the call of prepare began.
  void end_file(size_t file, uint32_t num_chunks);
  /// Waits for the disk. @throws IoError
  void sync();

  /// Returns one entry per file; totals() has the sums over all files.
  std::vector<InputEntry> entries() const;
  DocumentCounts totals() const;

  /// The work that was taken over from the journal.
  size_t num_files_before() const { return num_files_before_; }
  int64_t text_bytes_before() const { return text_bytes_before_; }

 private:
  struct FileState {
    DocumentCounts counts;
    std::string fingerprint;
    std::vector<bool> done;  // chunks that an earlier call finished
    bool begun = false, finished = false;
  };

  std::vector<InputFile> files_;
  TokenStream& stream_;
  PrepareJournal& journal_;
  std::mutex mutex_;
  std::vector<FileState> states_;
  size_t num_files_before_ = 0;
  int64_t text_bytes_before_ = 0;
  std::atomic<uint64_t> unsynced_bytes_ = 0;
};

}  // namespace athanor::inline preparation
