#pragma once
// Rows on disk, sorted by their bucket. Each bucket is a file that is appended to through a buffer and read
// sequentially.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

namespace athanor::inline preparation {

class BucketFiles {
 public:
  /// @param buffer_bytes  size of each bucket's buffer; at least a row and its number.
  BucketFiles(std::filesystem::path folder, int64_t row_bytes, uint64_t buffer_bytes);

  /// Begins a pass over buckets [first, first + count), which are empty; their earlier files are overwritten.
  void begin(int64_t first, int64_t count);
  /// Appends a row, and its number `row` among all rows, to one of these buckets. @throws IoError
  void append(int64_t bucket, int64_t row, const std::byte* bytes);
  /// Ends the pass: waits until all rows are on disk, and frees the buffers. @throws IoError
  void finish();

  /// Calls `take` with each row of the bucket, in the order in which they were appended. Memory: about a MiB.
  /// @return the number of rows. @throws IoError
  int64_t read(int64_t bucket, const std::function<void(int64_t row, const std::byte* bytes)>& take) const;
  /// Removes the bucket's file. Errors are ignored.
  void remove(int64_t bucket) const;

 private:
  std::filesystem::path file_of(int64_t bucket) const;
  void flush(size_t index);

  std::filesystem::path folder_;
  size_t row_bytes_, buffer_bytes_;
  int64_t first_ = 0;
  std::vector<std::byte> buffers_;
  std::vector<size_t> filled_;     // bytes in each buffer
  std::vector<uint64_t> written_;  // bytes in each file
};

}  // namespace athanor::inline preparation
