#pragma once
// The border to libathanor_parquet.so, which holds what needs Arrow's libparquet.
//
// The front opens the library when the first Parquet file is read (documents/parquet_records.h), so that it starts
// without it. Both sides are built together: plain C++ types and exceptions pass.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

struct TableRequest {
  std::string file;
  std::string text_column;                ///< its name, or the path "a.b" of a field in structs
  std::vector<std::string> other_fields;  ///< paths of scalars that a selection reads; one that is absent is left out
  uint64_t max_text_bytes = 0;
};

struct TableRow {
  std::string text;
  bool is_null = false;
  std::string fields;  ///< a JSON object of the other fields, nested by their paths; empty if none was asked for
};

/// A file's rows in order, a page of a column in memory at a time.
class TableReader {
 public:
  virtual ~TableReader() = default;
  /// @return false at the end. @throws DocumentError naming file and row.
  virtual bool next(TableRow& row) = 0;
  virtual double fraction_read() const = 0;  ///< of the rows, for progress
};

/// What the library exports as `athanor_open_table`; the caller owns the result. @throws DocumentError if the file is
/// no Parquet, or its columns are not what is asked for.
using OpenTable = TableReader* (*)(const TableRequest&);

}  // namespace athanor
