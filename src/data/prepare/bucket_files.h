#pragma once
// Rows that wait on disk, sorted by the bucket that they go to. Each bucket is a file, appended to through a buffer and
// read from beginning to end.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

namespace athanor {

class BucketFiles {
 public:
  /// @param buffer_bytes  of each bucket; at least a row and its number.
  BucketFiles(std::filesystem::path folder, int64_t row_bytes, uint64_t buffer_bytes);

  /// Begins with buckets [first, first + count), empty; earlier files of theirs are overwritten.
  void begin(int64_t first, int64_t count);
  /// One of them gets the row. @throws IoError
  void append(int64_t bucket, int64_t row, const std::byte* bytes);
  /// All rows are on disk, and the buffers' memory is given back. @throws IoError
  void finish();

  /// Calls `take` with each row of the bucket, in the order of their coming. Memory: about a MiB.
  /// @return how many there were. @throws IoError
  int64_t read(int64_t bucket, const std::function<void(int64_t row, const std::byte* bytes)>& take) const;
  void remove(int64_t bucket) const;

 private:
  std::filesystem::path file_of(int64_t bucket) const;
  void flush(size_t index);

  std::filesystem::path folder_;
  size_t row_bytes_, buffer_bytes_;
  int64_t first_ = 0;
  std::vector<std::byte> buffers_;
  std::vector<size_t> filled_;     // of each buffer
  std::vector<uint64_t> written_;  // to each file
};

}  // namespace athanor
