#pragma once
// Asks the disk early for what a reader of a checkpoint will read, so that the disk works while the reader hashes.
//
// The kernel reads ahead of a mapped file too, but it begins small in each file and after each gap, and it waits until
// the reader touches the pages. What a reader needs is known before it begins.

#include <cstdint>
#include <functional>
#include <vector>

#include "checkpoint/manifest.h"

namespace athanor::inline checkpoint {

class ReadAhead {
 public:
  /// Asks for these bytes of a file; returns before they are there.
  using Ask = std::function<void(const FileTable::value_type& file, uint64_t begin, uint64_t end)>;

  /// Bytes that are asked for before they are read, and how many of them in one call: disks are fast with several
  /// requests of some megabytes each.
  static constexpr uint64_t kAheadBytes = uint64_t{32} << 20, kAskBytes = uint64_t{4} << 20;

  explicit ReadAhead(Ask ask) : ask_(std::move(ask)) {}

  /// Adds bytes that will be read after all those that were added before.
  void add(const FileTable::value_type& file, uint64_t begin, uint64_t end);
  /// To be called before the first byte is read (0), and after bytes were read, in the order of add().
  void note_read(uint64_t num_bytes);

 private:
  struct Range {
    const FileTable::value_type* file;
    uint64_t begin, end;
  };

  Ask ask_;
  std::vector<Range> ranges_;
  size_t next_ = 0;                // the first range that was not asked for as a whole
  uint64_t asked_ = 0, read_ = 0;  // bytes
};

}  // namespace athanor::inline checkpoint
