#pragma once
// NumPy's .npy files as far as shards of token ids need them: matrices of '<u2' or '<u4', row after row.
//
// Source of the format: numpy.lib.format, versions 1.0 to 3.0.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file_reader.h"

namespace athanor::inline dataset {

/// Header of a matrix [num_rows, num_cols] of unsigned integers of `item_bytes` (2 or 4) each, row-major, from byte
/// `data_offset` on.
struct NpyHeader {
  int item_bytes = 2;
  int64_t num_rows = 0, num_cols = 0;
  uint64_t data_offset = 0;
};

/// Returns the bytes before the data of a version 1.0 file; their number is a multiple of 64 and depends only on the
/// number of digits of the shape.
std::string npy_header(int item_bytes, int64_t num_rows, int64_t num_cols);

/// Parses the header at the beginning of `file`, which is the whole file or its beginning. `name` names it in messages.
/// @throws DataError with the byte. Other dtypes, Fortran order and other numbers of axes are refused with the reason.
NpyHeader parse_npy_header(std::string_view file, const std::string& name);

/// An open shard. Any number of threads may read rows concurrently.
class NpyMatrix {
 public:
  /// @throws DataError if the header is wrong or the file's size differs from the one that the header implies; IoError.
  static NpyMatrix open(const std::filesystem::path& file);

  const NpyHeader& header() const { return header_; }
  int64_t num_rows() const { return header_.num_rows; }
  int64_t num_cols() const { return header_.num_cols; }
  /// Returns the byte of the file at which the row, counted from 0, begins.
  uint64_t offset_of(int64_t row) const;
  /// Copies the row's num_cols items to `out`, little-endian, item_bytes each.
  /// @throws IoError naming file and byte.
  void read_row(int64_t row, std::byte* out) const { read_rows(row, 1, out); }
  /// Copies `count` rows from `row` on, in one read.
  void read_rows(int64_t row, int64_t count, std::byte* out) const;
  const FileReader& file() const { return file_; }

 private:
  NpyMatrix(FileReader file, NpyHeader header) : file_(std::move(file)), header_(header) {}

  FileReader file_;
  NpyHeader header_;
};

/// Checks that `file_bytes` is the size that `header` implies. @throws DataError naming the byte of the difference.
void check_npy_size(const NpyHeader& header, uint64_t file_bytes, const std::string& name);

}  // namespace athanor::inline dataset
