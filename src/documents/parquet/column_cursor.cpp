#include "documents/parquet/column_cursor.h"

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace athanor::inline documents {
namespace {

// Few values are read at a time: they are pointers into the page, or numbers.
constexpr int64_t kBatch = 256;

template <class Type>
class TypedCursor : public ColumnCursor {
 public:
  explicit TypedCursor(std::shared_ptr<parquet::ColumnReader> reader)
      : reader_(std::static_pointer_cast<parquet::TypedColumnReader<Type>>(std::move(reader))),
        max_level_(reader_->descr()->max_definition_level()) {}

  bool advance() override {
    if (++at_level_ >= num_levels_ && !fill()) return false;
    // Nulls are not among the values.
    is_null_ = max_level_ > 0 && levels_[static_cast<size_t>(at_level_)] < max_level_;
    if (!is_null_ && ++at_value_ >= num_values_) throw parquet::ParquetException("fewer values than the levels tell");
    return true;
  }
  bool is_null() const override { return is_null_; }

  std::string_view bytes() const override {
    if constexpr (std::is_same_v<Value, parquet::ByteArray>) {
      return {reinterpret_cast<const char*>(value().ptr), value().len};
    } else {
      ATHANOR_ASSERT(false);
    }
  }

  nlohmann::json json() const override {
    if (is_null_) return nullptr;
    if constexpr (std::is_same_v<Value, parquet::ByteArray>) {
      return std::string(bytes());
    } else {
      return value();
    }
  }

 private:
  using Value = typename Type::c_type;

  const Value& value() const { return values_[static_cast<size_t>(at_value_)]; }

  bool fill() {
    at_level_ = 0;
    at_value_ = -1;
    if (!reader_->HasNext()) return false;
    num_levels_ = reader_->ReadBatch(kBatch, levels_.data(), nullptr, values_.data(), &num_values_);
    return num_levels_ > 0;
  }

  std::shared_ptr<parquet::TypedColumnReader<Type>> reader_;
  int16_t max_level_;
  std::array<int16_t, kBatch> levels_{};
  std::array<Value, kBatch> values_{};
  int64_t num_levels_ = 0, num_values_ = 0, at_level_ = -1, at_value_ = -1;
  bool is_null_ = false;
};

}  // namespace

bool is_scalar_type(parquet::Type::type type) {
  return type != parquet::Type::INT96 && type != parquet::Type::FIXED_LEN_BYTE_ARRAY;
}

std::unique_ptr<ColumnCursor> make_cursor(std::shared_ptr<parquet::ColumnReader> reader) {
  switch (reader->type()) {
    case parquet::Type::BOOLEAN: return std::make_unique<TypedCursor<parquet::BooleanType>>(std::move(reader));
    case parquet::Type::INT32: return std::make_unique<TypedCursor<parquet::Int32Type>>(std::move(reader));
    case parquet::Type::INT64: return std::make_unique<TypedCursor<parquet::Int64Type>>(std::move(reader));
    case parquet::Type::FLOAT: return std::make_unique<TypedCursor<parquet::FloatType>>(std::move(reader));
    case parquet::Type::DOUBLE: return std::make_unique<TypedCursor<parquet::DoubleType>>(std::move(reader));
    case parquet::Type::BYTE_ARRAY: return std::make_unique<TypedCursor<parquet::ByteArrayType>>(std::move(reader));
    default: return nullptr;
  }
}

}  // namespace athanor::inline documents
