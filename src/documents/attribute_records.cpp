#include "documents/attribute_records.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "documents/records.h"
#include "documents/selection.h"

namespace athanor::inline documents {
namespace fs = std::filesystem;

namespace {

constexpr const char* kEndings[] = {".jsonl.gz", ".jsonl.zst", ".jsonl",      ".json.gz", ".json.zst",
                                    ".json",     ".ndjson.gz", ".ndjson.zst", ".ndjson"};

// Returns attributes/NAME/x/y.jsonl.gz for documents/x/y.jsonl.gz; empty if no folder of the path is called
// "documents".
fs::path attribute_path(const fs::path& documents, const std::string& name) {
  const std::vector<fs::path> parts(documents.begin(), documents.end());
  const auto last = std::find(parts.rbegin(), parts.rend(), "documents");
  if (last == parts.rend() || last == parts.rbegin()) return {};
  fs::path result;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    result /= part == last.base() - 1 ? fs::path("attributes") / name : *part;
  }
  return result;
}

// Removes the endings that input_format knows.
fs::path stem_of(fs::path path) {
  const auto format = input_format(path);
  if (format && format->compression != Compression::kNone) path.replace_extension();
  return path.replace_extension();
}

bool is_json_file(const fs::path& path) {
  const auto format = input_format(path);
  return format && (format->kind == InputKind::kJson || format->kind == InputKind::kJsonLines);
}

class AttributedRecords : public RecordSource {
 public:
  AttributedRecords(std::unique_ptr<RecordSource> documents, const fs::path& file, const DocumentOptions& options,
                    uint64_t max_record_bytes)
      : documents_(std::move(documents)), file_(file.string()) {
    for (const auto& name : options.selection->options().attributes) {
      const auto path = find_attribute_file(file, name);
      files_.push_back({path.string(), RecordReader(path, max_record_bytes)});
    }
  }

  bool next(Record& record) override {
    const bool found = documents_->next(record);
    if (found) ++num_documents_;
    for (auto& file : files_) {
      Record row;
      const bool has_row = next_row(file, row);
      if (found && !has_row) {
        fail<DataError>("{}: ends after {} rows, {} has more; attributes need a row for each document", file.name,
                        num_documents_ - 1, file_);
      }
      if (!found && has_row) {
        fail<DataError>("{}:{}: a row too many: {} has only {} documents; attributes need a row for each document",
                        file.name, row.line, file_, num_documents_);
      }
      if (found) record.attributes.push_back({std::move(row.bytes), row.line});
    }
    return found;
  }

  uint64_t file_position() const override { return documents_->file_position(); }

 private:
  struct File {
    std::string name;
    RecordReader reader;
  };

  // An empty file has no rows.
  static bool next_row(File& file, Record& row) {
    try {
      return file.reader.next(row);
    } catch (const DocumentError& error) {
      if (error.cause() == kNoDocuments) return false;
      throw;
    }
  }

  std::unique_ptr<RecordSource> documents_;
  std::string file_;
  std::vector<File> files_;
  uint64_t num_documents_ = 0;
};

}  // namespace

fs::path find_attribute_file(const fs::path& documents, const std::string& name) {
  auto wanted = attribute_path(documents, name);
  if (wanted.empty()) wanted = attribute_path(fs::absolute(documents), name);
  ATHANOR_CHECK_DATA(
      !wanted.empty(),
      "{}: --attributes {} needs a folder \"documents\" in its path: attributes are next to it, in attributes/{}",
      documents.string(), name, name);
  std::error_code ignored;
  if (is_json_file(wanted) && fs::exists(wanted, ignored)) return wanted;
  std::vector<std::string> found;
  for (const char* ending : kEndings) {
    auto other = stem_of(wanted);
    other += ending;
    if (fs::exists(other, ignored)) found.push_back(other.string());
  }
  ATHANOR_CHECK_DATA(!found.empty(), "{} does not exist: --attributes {} needs it for {}", wanted.string(), name,
                     documents.string());
  ATHANOR_CHECK_DATA(found.size() == 1, "{}: --attributes {} may be any of {}; leave one there", documents.string(),
                     name, join(found));
  return found.front();
}

void check_attribute_files(const fs::path& documents, const DocumentOptions& options) {
  if (!options.selection) return;
  for (const auto& name : options.selection->options().attributes) find_attribute_file(documents, name);
}

std::unique_ptr<RecordSource> with_attributes(std::unique_ptr<RecordSource> documents, const fs::path& file,
                                              const DocumentOptions& options, uint64_t max_record_bytes) {
  if (!options.selection || options.selection->options().attributes.empty()) return documents;
  return std::make_unique<AttributedRecords>(std::move(documents), file, options, max_record_bytes);
}

}  // namespace athanor::inline documents
