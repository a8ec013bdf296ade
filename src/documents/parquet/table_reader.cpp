// libathanor_parquet.so: reads the rows of a Parquet file through Arrow's libparquet.
//
// libparquet's own readers of pages read the columns, and no Arrow arrays are made. So the memory is a page of each
// column and its dictionary, however large the row groups are and however often a dictionary's text is repeated.

#include "documents/parquet/table_reader.h"

#include <arrow/memory_pool.h>
#include <fmt/format.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "documents/document_error.h"
#include "documents/parquet/column_cursor.h"

namespace athanor::inline documents {
namespace {

using nlohmann::json;

constexpr int64_t kReadBufferBytes = int64_t{1} << 20;
constexpr size_t kMaxShownColumns = 20;

// Returns the first line of a library's message.
std::string first_line(std::string_view what) {
  return std::string(what.substr(0, std::min<size_t>(what.find('\n'), 300)));
}

// Names the type of a column as users know it: "int64", "a list", "FIXED_LEN_BYTE_ARRAY (Float16)".
std::string type_of(const parquet::ColumnDescriptor& column) {
  if (column.max_repetition_level() > 0) return "a list";
  const auto& logical = column.logical_type();
  auto type = parquet::TypeToString(column.physical_type());
  return logical && !logical->is_none() ? type + " (" + first_line(logical->ToString()) + ")" : type;
}

bool is_text(const parquet::ColumnDescriptor& column) {
  if (column.max_repetition_level() > 0 || column.physical_type() != parquet::Type::BYTE_ARRAY) return false;
  const auto& logical = column.logical_type();
  return !logical || logical->is_none() || logical->is_string() || logical->is_JSON() || logical->is_enum();
}

class ParquetTable : public TableReader {
 public:
  explicit ParquetTable(const TableRequest& request) : request_(request) {
    guarded([&] {
      // The pool of malloc gives memory back; the faster ones keep the memory of a large page.
      parquet::ReaderProperties properties(arrow::system_memory_pool());
      properties.enable_buffered_stream();
      properties.set_buffer_size(kReadBufferBytes);
      properties.set_page_checksum_verification(true);
      reader_ = parquet::ParquetFileReader::OpenFile(request.file, false, properties);
      num_groups_ = reader_->metadata()->num_row_groups();
      num_rows_ = reader_->metadata()->num_rows();
    });
    find_text();
    for (const auto& path : request.other_fields) find_other(path);
  }

  bool next(TableRow& row) override {
    bool found = false;
    guarded([&] {
      while (!found) {
        if (!text_ && !open_group()) return;
        found = text_->advance();
        if (!found) end_group();
      }
      ++row_;
      ++row_in_group_;
      row.is_null = text_->is_null();
      row.text.clear();
      if (!row.is_null) take_text(row.text);
      if (!others_.empty()) take_others(row.fields);
    });
    return found;
  }

  double fraction_read() const override {
    return num_rows_ > 0 ? std::min(1.0, static_cast<double>(row_) / static_cast<double>(num_rows_)) : 1;
  }

 private:
  struct Other {
    json::json_pointer place;
    int column;
    std::unique_ptr<ColumnCursor> cursor;
  };

  // Turns an exception of libparquet into an error of ours.
  template <class Work>
  void guarded(Work&& work) {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      complain_of_damage("it asks for more memory than there is");
    } catch (const std::exception& error) {
      complain_of_damage(first_line(error.what()));
    }
  }
  [[noreturn]] void complain_of_damage(const std::string& what) const {
    throw DocumentError(kDamagedTable,
                        fmt::format("{}: cannot be read as Parquet{}: {}; get the file again", request_.file,
                                    row_ > 0 ? fmt::format(" after row {}", row_) : "", what));
  }

  const parquet::SchemaDescriptor& schema() const { return *reader_->metadata()->schema(); }

  struct Found {
    int times = 0;    // how often it is there, 2 or more also if a struct on the way to it is repeated
    int column = -1;  // that of the last one; none if it is a struct, list or map
  };

  // Looks up what structs have under `path`, from the name at `from` on.
  Found find_field(const parquet::schema::GroupNode& group, const FieldPath& path, size_t from = 0) const {
    Found found;
    const parquet::schema::Node* last = nullptr;
    for (int i = 0; i < group.field_count(); ++i) {
      if (group.field(i)->name() != path[from]) continue;
      last = group.field(i).get();
      ++found.times;
    }
    if (!last) return {};
    if (last->is_primitive()) {
      return from + 1 == path.size() ? Found{found.times, schema().ColumnIndex(*last)} : Found{};
    }
    if (from + 1 == path.size()) return found;
    const auto inner = find_field(static_cast<const parquet::schema::GroupNode&>(*last), path, from + 1);
    return inner.times == 0 ? Found{} : Found{std::max(found.times, inner.times), inner.column};
  }

  void find_text() {
    const auto& name = request_.text_column;
    Found found;
    for (const auto& path : paths_of_field(name)) {
      if (found.times == 0) found = find_field(*schema().group_node(), path);
    }
    const auto refuse = [&](const std::string& what) {
      throw DocumentError(kNoTextColumn, fmt::format("{}: {}; name {} with --text-field", request_.file, what,
                                                     found.times == 0 ? "the right one" : "another"));
    };
    if (found.times == 0) refuse(fmt::format("no column \"{}\"; there is {}", name, columns_there()));
    if (found.times > 1) refuse(fmt::format("the column \"{}\" occurs {} times", name, found.times));
    if (found.column < 0) refuse(fmt::format("column \"{}\" is nested, a string is needed", name));
    const auto& column = *schema().Column(found.column);
    if (!is_text(column)) refuse(fmt::format("column \"{}\" is {}, a string is needed", name, type_of(column)));
    text_column_ = found.column;
  }

  std::string columns_there() const {
    std::string names;
    for (int i = 0; i < schema().num_columns(); ++i) {
      if (i == static_cast<int>(kMaxShownColumns)) return names + ", ...";
      names += (i == 0 ? "" : ", ") +
               json(schema().Column(i)->path()->ToDotString()).dump(-1, ' ', false, json::error_handler_t::replace);
    }
    return names.empty() ? "none" : names;
  }

  // The last of several columns of one name counts, as the last of several members of a JSON object does.
  void find_other(const FieldPath& path) {
    const auto found = find_field(*schema().group_node(), path);
    if (found.times == 0) return;
    const auto* column = found.column < 0 ? nullptr : schema().Column(found.column);
    if (!column || column->max_repetition_level() > 0 || !is_scalar_type(column->physical_type())) {
      throw DocumentError(kNoTextColumn,
                          fmt::format("{}: column \"{}\" is {}; expressions read only texts, numbers and booleans of "
                                      "Parquet files",
                                      request_.file, fmt::join(path, "."), column ? type_of(*column) : "nested"));
    }
    json::json_pointer place;
    for (const auto& name : path) place.push_back(name);
    others_.push_back({place, found.column, nullptr});
  }

  bool open_group() {
    if (group_ == num_groups_) return false;
    const auto group = reader_->RowGroup(group_++);
    rows_of_group_ = group->metadata()->num_rows();
    row_in_group_ = 0;
    text_ = make_cursor(group->Column(text_column_));
    for (auto& other : others_) other.cursor = make_cursor(group->Column(other.column));
    return true;
  }

  void end_group() {
    text_.reset();
    if (row_in_group_ == rows_of_group_) return;
    complain_of_damage(
        fmt::format("row group {} has {} rows, its column only {}", group_, rows_of_group_, row_in_group_));
  }

  void take_text(std::string& out) const {
    const auto bytes = text_->bytes();
    if (bytes.size() > request_.max_text_bytes) {
      throw DocumentError(kTooLarge, fmt::format("{}:row {}: a document of more than {} bytes; split it", request_.file,
                                                 row_, request_.max_text_bytes));
    }
    out.assign(bytes);
  }

  void take_others(std::string& out) {
    json object = json::object();
    for (auto& other : others_) {
      if (!other.cursor->advance()) complain_of_damage("a column has fewer rows than another");
      object[other.place] = other.cursor->json();
    }
    out = object.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  TableRequest request_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  int num_groups_ = 0, group_ = 0, text_column_ = -1;
  int64_t num_rows_ = 0, row_ = 0, rows_of_group_ = 0, row_in_group_ = 0;
  std::unique_ptr<ColumnCursor> text_;  // none between row groups
  std::vector<Other> others_;
};

}  // namespace
}  // namespace athanor::inline documents

extern "C" __attribute__((visibility("default"))) athanor::TableReader* athanor_open_table(
    const athanor::TableRequest& request) {
  return std::make_unique<athanor::ParquetTable>(request).release();
}
