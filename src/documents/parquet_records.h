#pragma once
// The rows of a Parquet file as records: the text with the fields of a selection, or all columns.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "documents/document_options.h"
#include "documents/record_source.h"

namespace athanor::inline documents {

/// Returns the rows of a Parquet file. The first next() of a process loads libathanor_parquet.so, which is next to
/// libathanor.
/// @throws DocumentError if the file is empty, DataError if it is not a regular file, IoError if it cannot be opened.
///         The result's next() throws DocumentError naming the file; DataError with the remedy if this build has no
///         such library.
std::unique_ptr<RecordSource> open_parquet_records(const std::filesystem::path& file, const DocumentOptions& options,
                                                   uint64_t max_record_bytes);

/// Returns the rows of a Parquet file, each as a JSON object of all its columns, with lists and structs. Records have
/// `is_row` set, and `bytes` with the object. Memory: one batch of rows. The first next() of a process loads
/// libathanor_parquet.so.
/// @throws DataError if this build has no such library; DocumentError naming the file; IoError.
std::unique_ptr<RecordSource> open_parquet_rows(const std::filesystem::path& file, uint64_t max_record_bytes);

}  // namespace athanor::inline documents
