#pragma once
// A file under way: the part that its bytes go into, and for a long file the journal of its chunks and their hashes. If
// the transfer is cut both stay, and the next one takes those chunks that still have these hashes.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/append_file.h"
#include "base/hash.h"
#include "staging/chunk_table.h"
#include "staging/target_folder.h"

namespace athanor::staging {

/// Identifies the state of a source file: parts of another state must not be mixed with it.
std::string part_name(const Entry& entry, uint64_t chunk_bytes);
/// Writes bytes of a file to where they belong; zeros of a sparse file are left out. @throws IoError
void write_piece(const TargetFolder& target, int fd, const Entry& entry, const Piece& piece, const std::byte* bytes);
/// Gives a part the mode and the time of change of its file. @throws IoError
void set_facts(const TargetFolder& target, int fd, const Entry& entry);

class LongPart {
 public:
  /// Finds which chunks of the file an earlier transfer has left. Of a sparse file all or none count: what differs
  /// goes.
  /// @param entry  of a long file: it shares no chunk with another.
  LongPart(const Manifest& manifest, const ChunkTable& table, const TargetFolder& target, size_t entry);

  /// The chunk has its number in the file. Before open() only.
  bool has(uint64_t chunk) const { return has_chunk_[chunk]; }
  /// Creates what is missing of the part and the journal. @return whether no chunk is missing. @throws IoError
  bool open();
  const std::string& name() const { return part_; }
  int fd() const { return file_->fd(); }

  /// Writes a chunk. Any thread may call it. @return true for the last one. @throws IoError
  bool write(const Piece& piece, const std::byte* bytes);
  /// Waits until the part has bytes behind `at` without a gap in front of them, or `gives_up` returns true. @return the
  /// number of bytes at the front. For one thread.
  uint64_t wait_for_front(uint64_t at, const std::function<bool()>& gives_up);
  /// To be called when what `gives_up` returns has changed.
  void wake();
  /// Removes the journal, and closes the part. To be called when the file has its name.
  void close();

 private:
  using WrittenPiece = std::pair<Piece, HashWords>;
  std::vector<WrittenPiece> read_journal() const;

  const Manifest& manifest_;
  const ChunkTable& table_;
  const TargetFolder& target_;
  const size_t entry_;
  const std::string part_, journal_name_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<OpenedFile> file_;
  std::unique_ptr<AppendFile> journal_;
  std::vector<bool> has_chunk_;
  uint64_t num_left_ = 0;
  uint64_t front_bytes_ = 0;  // without a gap
  std::condition_variable grew_;
};

}  // namespace athanor::staging
