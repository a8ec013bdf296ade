#pragma once
// The interface of libathanor_parquet.so, the library with the code that needs Arrow's libparquet.
//
// The front end opens the library when the first Parquet file is read (documents/parquet_records.h), so that it starts
// without it. Both sides are built together, so plain C++ types and exceptions may cross the interface.

#include <cstdint>
#include <string>
#include <vector>

#include "documents/field_path.h"

namespace athanor::inline documents {

struct TableRequest {
  std::string file;
  std::string text_column;  ///< name of the column, or the path "a.b" of a field in structs (field_path.h)
  /// Paths of scalars that a selection reads; a path that is absent is left out.
  std::vector<FieldPath> other_fields;
  uint64_t max_text_bytes = 0;  ///< a longer text is an error
};

struct TableRow {
  std::string text;
  bool is_null = false;  ///< the text is null
  std::string fields;    ///< JSON object of the other fields, nested by their paths; empty if none was requested
};

/// Reads a file's rows in order, with one page of each column in memory.
class TableReader {
 public:
  virtual ~TableReader() = default;
  /// Fills `row` with the next row. @return false at the end. @throws DocumentError naming file and row.
  virtual bool next(TableRow& row) = 0;
  virtual double fraction_read() const = 0;  ///< fraction of the rows, from 0 to 1, for progress
};

/// The function that the library exports as `athanor_open_table`; the caller owns the result. @throws DocumentError if
/// the file is not Parquet, or its columns are not as requested.
using OpenTable = TableReader* (*)(const TableRequest&);

}  // namespace athanor::inline documents
