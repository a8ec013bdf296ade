// The other function of libathanor_parquet.so: whole rows as JSON, with lists and structs. Arrow decodes a batch of
// rows at a time, which takes more memory than table_reader.cpp; the data sets of evaluation tasks are small.

#include <arrow/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "documents/document_error.h"
#include "documents/parquet/table_reader.h"

namespace athanor::inline documents {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRowsInBatch = 1024;

template <class ArrayType>
Json value_at(const arrow::Array& array, int64_t row) {
  return Json(static_cast<const ArrayType&>(array).Value(row));
}

template <class ArrayType>
Json text_at(const arrow::Array& array, int64_t row) {
  return std::string(static_cast<const ArrayType&>(array).GetView(row));
}

Json json_at(const arrow::Array& array, int64_t row);

template <class ListType>
Json list_at(const arrow::Array& array, int64_t row) {
  const auto& list = static_cast<const ListType&>(array);
  auto elements = Json::array();
  for (int64_t i = list.value_offset(row); i < list.value_offset(row + 1); ++i)
    elements.push_back(json_at(*list.values(), i));
  return elements;
}

Json struct_at(const arrow::Array& array, int64_t row) {
  const auto& members = static_cast<const arrow::StructArray&>(array);
  auto object = Json::object();
  for (int i = 0; i < members.num_fields(); ++i)
    object[members.struct_type()->field(i)->name()] = json_at(*members.field(i), row);
  return object;
}

Json json_at(const arrow::Array& array, int64_t row) {
  using arrow::Type;
  if (array.IsNull(row)) return nullptr;
  switch (array.type_id()) {
    case Type::NA: return nullptr;
    case Type::BOOL: return value_at<arrow::BooleanArray>(array, row);
    case Type::INT8: return value_at<arrow::Int8Array>(array, row);
    case Type::INT16: return value_at<arrow::Int16Array>(array, row);
    case Type::INT32: return value_at<arrow::Int32Array>(array, row);
    case Type::INT64: return value_at<arrow::Int64Array>(array, row);
    case Type::UINT8: return value_at<arrow::UInt8Array>(array, row);
    case Type::UINT16: return value_at<arrow::UInt16Array>(array, row);
    case Type::UINT32: return value_at<arrow::UInt32Array>(array, row);
    case Type::UINT64: return value_at<arrow::UInt64Array>(array, row);
    case Type::FLOAT: return static_cast<double>(static_cast<const arrow::FloatArray&>(array).Value(row));
    case Type::DOUBLE: return value_at<arrow::DoubleArray>(array, row);
    case Type::STRING: return text_at<arrow::StringArray>(array, row);
    case Type::LARGE_STRING: return text_at<arrow::LargeStringArray>(array, row);
    case Type::LIST: return list_at<arrow::ListArray>(array, row);
    case Type::LARGE_LIST: return list_at<arrow::LargeListArray>(array, row);
    case Type::STRUCT: return struct_at(array, row);
    case Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return json_at(*dictionary.dictionary(), dictionary.GetValueIndex(row));
    }
    default: throw DocumentError(kUnfitValue, "the type " + array.type()->ToString());
  }
}

class ParquetRowReader : public TableReader {
 public:
  explicit ParquetRowReader(const TableRequest& request) : file_(request.file) {
    guarded([&] {
      parquet::arrow::FileReaderBuilder builder;
      PARQUET_THROW_NOT_OK(builder.OpenFile(request.file));
      parquet::ArrowReaderProperties properties;
      properties.set_batch_size(kRowsInBatch);
      builder.properties(properties);
      PARQUET_ASSIGN_OR_THROW(reader_, builder.Build());
      num_rows_ = reader_->parquet_reader()->metadata()->num_rows();
      PARQUET_ASSIGN_OR_THROW(batches_, reader_->GetRecordBatchReader());
    });
  }

  bool next(TableRow& row) override {
    bool found = false;
    guarded([&] {
      while (!batch_ || row_in_batch_ == batch_->num_rows()) {
        PARQUET_THROW_NOT_OK(batches_->ReadNext(&batch_));
        row_in_batch_ = 0;
        if (!batch_) return;
      }
      found = true;
      auto object = Json::object();
      for (int i = 0; i < batch_->num_columns(); ++i) object[batch_->column_name(i)] = json_of(i);
      ++row_in_batch_;
      ++row_;
      row.fields = object.dump(-1, ' ', false, Json::error_handler_t::replace);
    });
    return found;
  }

  double fraction_read() const override {
    return num_rows_ > 0 ? static_cast<double>(row_) / static_cast<double>(num_rows_) : 1;
  }

 private:
  Json json_of(int column) const {
    try {
      return json_at(*batch_->column(column), row_in_batch_);
    } catch (const DocumentError& error) {
      throw DocumentError(kUnfitValue,
                          fmt::format("{}: the column \"{}\" has {}, which no task can use; write the rows as .jsonl",
                                      file_, batch_->column_name(column), error.what()));
    }
  }

  // Turns an exception of libparquet into an error of ours.
  template <class Work>
  void guarded(Work&& work) {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string what(error.what());
      throw DocumentError(kDamagedTable, fmt::format("{}: cannot be read as Parquet{}: {}; get the file again", file_,
                                                     row_ > 0 ? fmt::format(" after row {}", row_) : "",
                                                     what.substr(0, std::min<size_t>(what.find('\n'), 300))));
    }
  }

  std::string file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t num_rows_ = 0, row_ = 0, row_in_batch_ = 0;
};

}  // namespace
}  // namespace athanor::inline documents

extern "C" __attribute__((visibility("default"))) athanor::TableReader* athanor_open_rows(
    const athanor::TableRequest& request) {
  return std::make_unique<athanor::ParquetRowReader>(request).release();
}
