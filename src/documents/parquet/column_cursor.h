#pragma once
// Reads one scalar column of a Parquet row group, value after value.

#include <parquet/column_reader.h>

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace athanor::inline documents {

/// A cursor is before the first row until the first advance(). Values point into the page that is being read: they are
/// valid until the next advance().
class ColumnCursor {
 public:
  virtual ~ColumnCursor() = default;
  /// Moves to the next row; returns false at the end of the row group. @throws what libparquet throws.
  virtual bool advance() = 0;
  virtual bool is_null() const = 0;
  /// Returns the value; it must not be null, and the column must be of byte arrays.
  virtual std::string_view bytes() const = 0;
  /// Returns the value as a JSON text, number or boolean, or null.
  virtual nlohmann::json json() const = 0;
};

/// Returns null for a physical type that is not a JSON scalar. The column must not be in a list.
std::unique_ptr<ColumnCursor> make_cursor(std::shared_ptr<parquet::ColumnReader> reader);

/// True if make_cursor supports the type.
bool is_scalar_type(parquet::Type::type type);

}  // namespace athanor::inline documents
