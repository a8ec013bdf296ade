#include "documents/documents.h"

#include <algorithm>

#include "base/text.h"
#include "documents/json_text.h"
#include "documents/selection.h"
#include "documents/standard_input.h"

namespace athanor::inline documents {
namespace {

struct Position {
  uint64_t line, byte_in_line;
};

Position position_of(const Record& record, size_t offset) {
  const auto begin = record.bytes.begin();
  const auto at = begin + static_cast<std::ptrdiff_t>(std::min(offset, record.bytes.size()));
  const auto newlines = static_cast<uint64_t>(std::count(begin, at, '\n'));
  if (newlines == 0) return {record.line, record.byte_in_line + static_cast<uint64_t>(at - begin)};
  const auto line_begin = std::find(std::make_reverse_iterator(at), std::make_reverse_iterator(begin), '\n').base();
  return {record.line + newlines, static_cast<uint64_t>(at - line_begin)};
}

void check_utf8(const Record& record, const std::filesystem::path& file) {
  const auto offset = find_invalid_utf8(record.bytes);
  if (!offset) return;
  const auto [line, byte] = record.is_row ? Position{record.line, *offset} : position_of(record, *offset);
  throw DocumentError(
      kInvalidUtf8, fmt::format("{}:{}{}: invalid UTF-8 at byte {} of the {} (0x{:02X}); convert the file to UTF-8, or "
                                "pass over such documents with --on-error skip",
                                shown_name(file), record.is_row ? "row " : "", line, byte,
                                record.is_row ? "text" : "line", static_cast<unsigned char>(record.bytes[*offset])));
}

Document parse_json_document(const Record& record, const std::filesystem::path& file, const std::string& text_field) {
  auto field = find_json_text(record.bytes, text_field, record.in_array);
  if (field.cause) {
    const auto [line, byte] = position_of(record, field.error_offset);
    const bool syntax = std::string_view(field.cause) == kInvalidJson;
    throw DocumentError(
        field.cause,
        fmt::format("{}:{}: {}{}", shown_name(file), line,
                    syntax ? fmt::format("invalid JSON at byte {} of the line: ", byte) : "", field.message));
  }
  return {std::move(field.text), fmt::format("{}:{}", shown_name(file), record.line)};
}

Document parse_row(Record& record, const std::filesystem::path& file, const std::string& text_field) {
  auto where = fmt::format("{}:row {}", shown_name(file), record.line);
  if (record.is_null) {
    throw DocumentError(kFieldNotString,
                        fmt::format("{}: column \"{}\" is null, a string is needed", where, text_field));
  }
  return {std::move(record.bytes), std::move(where)};
}

}  // namespace

Document parse_document(Record&& record, const std::filesystem::path& file, const DocumentOptions& options) {
  check_utf8(record, file);
  auto document = record.is_json  ? parse_json_document(record, file, options.text_field)
                  : record.is_row ? parse_row(record, file, options.text_field)
                                  : Document{std::move(record.bytes), shown_name(file)};
  if (options.selection) {
    document.dropped_by = options.selection->judge(record, document.text, file, options.text_field);
  }
  return document;
}

void handle_document_error(const DocumentError& error, const std::filesystem::path& file, SkipLog& skips) {
  const bool may_be_garbled = error.cause() == kInvalidJson || error.cause() == kInvalidUtf8;
  if (skips.fails() && may_be_garbled) check_compression(file);
  skips.handle(error);
}

SkipCounts read_documents(const std::filesystem::path& file, const DocumentOptions& options,
                          const std::function<void(Document&&)>& sink) {
  SkipLog skips(options.on_error);
  std::optional<RecordReader> reader;
  SkipCounts dropped;
  const auto read_one = [&]() -> bool {
    Record record;
    Document document;
    try {
      if (!reader) reader.emplace(file, options);
      if (!reader->next(record)) return false;
      document = parse_document(std::move(record), file, options);
    } catch (const DocumentError& error) {
      handle_document_error(error, file, skips);
      return reader.has_value();  // a reader at its end returns false the next time
    }
    if (document.dropped_by.empty()) {
      sink(std::move(document));
    } else {
      ++dropped[std::string(document.dropped_by)];
    }
    return true;
  };
  while (read_one()) {
  }
  auto counts = skips.counts();
  counts.merge(dropped);
  return counts;
}

}  // namespace athanor::inline documents
