#pragma once
// Reads the documents of a file, one after another.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "documents/document_error.h"
#include "documents/inputs.h"
#include "documents/records.h"

namespace athanor::inline documents {

struct Document {
  std::string text;
  std::string where;  ///< "file:line", "file:row 17", or "file" if the whole file is the document
  /// Condition that dropped the document; it lives as long as the options. Empty: the document is kept.
  std::string_view dropped_by = {};
};

/// Calls `sink` with each document in order. A .txt or .md file is one document. .jsonl and .json hold objects with the
/// text in `text_field` (elements of a JSON array may be plain strings); .gz and .zst hold any of these; .parquet has a
/// document in each row. Documents that the selection drops are skipped and counted. Memory is bounded by the largest
/// document.
///
/// @return the number of documents skipped or dropped, by cause. With kSkip a bad document is skipped, and so is the
///         rest of a file after damage to the file as a whole, which counts once. SkipLog defines what is logged.
/// @throws DocumentError with file and line or byte, with kFail. With both: DataError for a file of an unknown kind or
///         wrong attribute files; IoError.
SkipCounts read_documents(const std::filesystem::path& file, const DocumentOptions& options,
                          const std::function<void(Document&&)>& sink);

/// Passes `error`, about a document of `file`, to `skips`. If that would throw for invalid JSON or UTF-8, the file is
/// first checked for damaged compression, which is then the error reported: checksums come at the end of a file, so
/// garbled text is read before the damage is noticed.
/// @throws DocumentError with OnError::kFail.
void handle_document_error(const DocumentError& error, const std::filesystem::path& file, SkipLog& skips);

/// Parses a record that a RecordReader cut out of `file`, and applies the selection to it.
/// @throws DocumentError with file and line or byte; DataError if attributes belong to another document.
Document parse_document(Record&& record, const std::filesystem::path& file, const DocumentOptions& options);

}  // namespace athanor::inline documents
