#pragma once
// One scalar column of a Parquet row group, value after value.

#include <parquet/column_reader.h>

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace athanor {

/// Values point into the page that is being read: they live until the next advance().
class ColumnCursor {
 public:
  virtual ~ColumnCursor() = default;
  /// To the next row; false at the end of the row group. @throws what libparquet throws.
  virtual bool advance() = 0;
  virtual bool is_null() const = 0;
  /// Of a column of byte arrays only.
  virtual std::string_view bytes() const = 0;
  virtual nlohmann::json json() const = 0;
};

/// Null for a physical type that is no JSON scalar. The column must not be in a list.
std::unique_ptr<ColumnCursor> make_cursor(std::shared_ptr<parquet::ColumnReader> reader);

/// Does make_cursor know it?
bool is_scalar_type(parquet::Type::type type);

}  // namespace athanor
