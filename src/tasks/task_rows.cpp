#include "tasks/task_rows.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/inputs.h"
#include "documents/parquet_records.h"
#include "documents/records.h"
#include "tasks/key_reader.h"

namespace athanor::tasks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxRowBytes = uint64_t{1} << 30;

std::vector<std::string> row_endings(OutputType type) {
  std::vector<std::string> endings;
  for (const char* kind : {".jsonl", ".ndjson", ".json"})
    for (const char* compression : {"", ".gz", ".zst"}) endings.push_back(std::string(kind) + compression);
  endings.emplace_back(".parquet");
  if (type == OutputType::kRolling)
    for (const char* kind : {".txt", ".md"})
      for (const char* compression : {"", ".gz", ".zst"}) endings.push_back(std::string(kind) + compression);
  return endings;
}

std::optional<fs::path> find_with_ending(const fs::path& stem, OutputType type) {
  std::error_code ignored;
  for (const auto& ending : row_endings(type)) {
    const fs::path file = stem.string() + ending;
    if (fs::is_regular_file(file, ignored)) return file;
  }
  return std::nullopt;
}

// train-00000-of-00003.parquet and so on, as data sets are published.
std::vector<fs::path> find_numbered(const fs::path& folder, const std::string& split) {
  std::vector<fs::path> files;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return files;
  const std::string pattern = split + "-*-of-*.parquet";
  for (const auto& entry : fs::directory_iterator(folder))
    if (matches_wildcard(pattern, entry.path().filename().string())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) return files;
  const std::string name = files[0].filename().string();
  const std::string total = name.substr(name.rfind("-of-") + 4);
  ATHANOR_CHECK_DATA(std::stoul("0" + total) == files.size(),
                     "{}: its name tells of {} files, {} are there; get the others", files[0].string(),
                     total.substr(0, total.find('.')), files.size());
  return files;
}

std::string content_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    names.push_back(printable(entry.path().filename().string()));
  if (error) return "which cannot be read: " + error.message();
  std::sort(names.begin(), names.end());
  return names.empty() ? "which is empty" : "which has " + join_first(names, 12);
}

// The parser turns an integer that is too large into a fraction, which a template would print in another way.
bool has_huge_integer(std::string_view json) {
  constexpr size_t kMostDigits = 19;  // those of 2^63
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') in_string = !in_string;
    if (in_string && json[i] == '\\') ++i;
    if (in_string || json[i] < '0' || json[i] > '9') continue;
    const size_t end = std::min(json.find_first_not_of("0123456789", i), json.size());
    const size_t number_end = std::min(json.find_first_not_of("0123456789.eE+-", i), json.size());
    if (end == number_end && end - i > kMostDigits) return true;
    i = number_end - 1;
  }
  return false;
}

}  // namespace

std::vector<fs::path> find_split(const TaskConfig& task, const fs::path& data, const std::string& split) {
  const fs::path base = data / task.data;
  if (const auto file = find_with_ending(base.string() + "_" + split, task.output_type)) return {*file};
  std::vector<fs::path> folders{base};
  if (!task.dataset_name.empty()) folders.push_back(base / task.dataset_name);
  for (const auto& folder : folders) {
    if (const auto file = find_with_ending(folder / split, task.output_type)) return {*file};
    if (auto files = find_numbered(folder, split); !files.empty()) return files;
  }
  return {};
}

std::vector<fs::path> find_evaluation_rows(const TaskConfig& task, const fs::path& data) {
  const std::string& split = task.evaluation_split();
  std::error_code ignored;
  ATHANOR_CHECK_DATA(fs::is_directory(data, ignored),
                     "--data {}: no such folder; it has the files with the rows of the tasks", data.string());
  if (auto files = find_split(task, data, split); !files.empty()) return files;
  const fs::path base = data / task.data;
  if (const auto file = find_with_ending(base, task.output_type)) return {*file};
  const bool is_rolling = task.output_type == OutputType::kRolling;
  if (is_rolling && fs::is_directory(base, ignored)) return expand_inputs({base.string()});
  fail<DataError>(
      "{}: no rows of the split {}; looked for {}_{}, {}/{}, {}/{}-00000-of-0000n.parquet{} and {} (.jsonl, .json{} or "
      ".parquet, also .gz or .zst) in {}, {}",
      task.where, split, task.data, split, task.data, split, task.data, split,
      task.dataset_name.empty() ? "" : fmt::format(", {}/{}/{}", task.data, task.dataset_name, split), task.data,
      is_rolling ? ", .txt" : "", data.string(), content_of(data));
}

nlohmann::ordered_json RawRow::parse() const {
  if (const auto byte = find_invalid_utf8(bytes)) fail<DataError>("{}: not UTF-8 at byte {}", place, *byte + 1);
  if (!is_json) return {{"text", bytes}};
  ATHANOR_CHECK_DATA(!has_huge_integer(bytes), "{}: an integer needs more than 64 bits; write it as a text", place);
  JsonFault fault;
  Json row = read_ordered_json(bytes, &fault);
  ATHANOR_CHECK_DATA(!row.is_discarded() || fault.byte == 0, "{}: no JSON at byte {}", place, fault.byte);
  ATHANOR_CHECK_DATA(!row.is_discarded(), "{}: a row cannot be taken: {}", place, fault.reason);
  ATHANOR_CHECK_DATA(row.is_object(), "{}: a row is an object with fields, this is {}", place, describe_json(row));
  return row;
}

struct RowReader::Source {
  explicit Source(const fs::path& path) : file(path) {
    const auto format = input_format(path);
    if (format && format->kind == InputKind::kParquet) {
      table = open_parquet_rows(path, kMaxRowBytes);
    } else {
      records.emplace(path, kMaxRowBytes);
    }
  }
  bool next(Record& record) {
    if (records) return records->next(record);
    record = Record();
    return table->next(record);
  }

  fs::path file;
  std::optional<RecordReader> records;
  std::unique_ptr<RecordSource> table;
};

RowReader::RowReader(std::vector<fs::path> files) : files_(std::move(files)) {}
RowReader::~RowReader() = default;

bool RowReader::next(RawRow& row) {
  Record record;
  while (file_ < files_.size()) {
    if (!source_) source_ = std::make_unique<Source>(files_[file_]);
    bool found = false;
    try {
      found = source_->next(record);
    } catch (const DocumentError& error) {
      if (error.cause() != kNoDocuments) throw;
      fail<DataError>("{} has no rows", files_[file_].string());
    }
    if (found) {
      row.place = fmt::format("{}:{}{}", files_[file_].string(), record.is_row ? "row " : "", record.line);
      row.is_json = record.is_json || record.is_row;
      row.bytes = std::move(record.bytes);
      ++position_;
      return true;
    }
    source_.reset();
    ++file_;
  }
  return false;
}

int64_t RowSelection::count() const {
  int64_t sum = 0;
  for (const auto& run : runs) sum += run.end - run.begin;
  return sum;
}

std::vector<RowSelection> select_rows(const std::vector<fs::path>& files,
                                      const std::vector<const Template*>& conditions) {
  std::vector<RowSelection> selections(conditions.size());
  for (auto& selection : selections) selection.files = files;
  const bool parses =
      std::any_of(conditions.begin(), conditions.end(), [](const Template* condition) { return condition; });
  RowReader reader(files);
  RawRow raw;
  for (int64_t index = 0; reader.next(raw); ++index) {
    const Json row = parses ? raw.parse() : Json();
    for (size_t i = 0; i < conditions.size(); ++i) {
      try {
        if (conditions[i] && !conditions[i]->holds(row)) continue;
      } catch (const DataError& error) {
        fail<DataError>("{}: {}", raw.place, error.what());
      }
      auto& runs = selections[i].runs;
      if (!runs.empty() && runs.back().end == index) {
        ++runs.back().end;
      } else {
        runs.push_back({index, index + 1});
      }
    }
  }
  return selections;
}

void SelectionReader::start(const RowSelection& selection) {
  selection_ = &selection;
  run_ = 0;
  next_ = selection.runs.empty() ? 0 : selection.runs[0].begin;
  if (!reader_ || reader_->files() != selection.files || reader_->position() > next_)
    reader_ = std::make_unique<RowReader>(selection.files);
}

bool SelectionReader::next(RawRow& row) {
  ATHANOR_ASSERT(selection_);
  if (run_ == selection_->runs.size()) return false;
  while (reader_->position() <= next_) {
    ATHANOR_CHECK_DATA(reader_->next(row), "{}: it became shorter while it was read",
                       selection_->files.back().string());
  }
  if (++next_ == selection_->runs[run_].end && ++run_ < selection_->runs.size()) next_ = selection_->runs[run_].begin;
  return true;
}

}  // namespace athanor::tasks
