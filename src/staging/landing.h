#pragma once
// What one node does with what comes: it finds out what it lacks, writes it as parts, and gives each file its name when
// it is whole and on the disk.
//
// Fault points: "yeet.write", "yeet.chunk", "yeet.place".

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "staging/chunk.h"
#include "staging/chunk_table.h"
#include "staging/long_part.h"
#include "staging/target_folder.h"
#include "staging/unpacker.h"

namespace athanor::staging {

class Landing {
 public:
  /// Makes the target folder if it is missing, and nothing in it but the folder of parts with its lock.
  Landing(const Manifest& manifest, const ChunkTable& table, const std::filesystem::path& target);
  /// Leaves what was not given its name for the next transfer.
  ~Landing();
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  /// Returns the chunks that this node lacks. Changes nothing. To be called once.
  /// @param hashes  of the source's chunks, as their headers have them; null: size and time of change decide.
  /// @throws ConfigError if the disk has no room for them, or something is in the way.
  ChunkSet find_lacking(const std::vector<HashWords>* hashes);
  /// Makes the folders, and begins to unpack archives.
  void begin();
  /// Writes what this node lacks of a chunk. Any thread may call it. After a failure it does nothing.
  void write(ChunkBuffer& buffer);
  /// To be called when all chunks were written: gives all files their names, and removes the parts.
  void finish();

  /// The first failure of this node.
  std::exception_ptr failure() const;
  void fail_with(std::exception_ptr failure);
  uint64_t bytes_written() const { return bytes_written_; }

 private:
  struct Small {
    std::string part;
    size_t entry;
  };

  bool is_long(size_t entry) const;
  void check_room(const ChunkSet& lacking) const;
  void land(const Piece& piece, const std::byte* bytes);
  void write_short(const Piece& piece, const std::byte* bytes);
  void complete_long(size_t entry, LongPart& part);
  void place_batch(std::vector<Small> batch);
  void wake_unpacking();
  void unpack_all();
  void unpack(size_t entry);
  void place_unpacked(const Entry& archive, const std::vector<UnpackedEntry>& unpacked);
  void place_rest();
  void remove_parts() const;

  const Manifest& manifest_;
  const ChunkTable& table_;
  TargetFolder target_;
  std::vector<bool> present_;                          // by entry; fixed once find_lacking has returned
  std::map<size_t, std::unique_ptr<LongPart>> longs_;  // those that are not present
  std::atomic<uint64_t> bytes_written_ = 0;
  std::atomic<bool> failed_ = false, leaving_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Small> batch_;
  std::exception_ptr failure_;
  std::thread unpacking_;
};

}  // namespace athanor::staging
