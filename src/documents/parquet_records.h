#pragma once
// The rows of a Parquet file as records.

#include <filesystem>
#include <memory>

#include "documents/document_options.h"
#include "documents/record_source.h"

namespace athanor {

/// Opens a Parquet file. The first call loads libathanor_parquet.so, which is next to libathanor.
/// @throws DocumentError naming the file, with the remedy if this build has no such library.
std::unique_ptr<RecordSource> open_parquet_records(const std::filesystem::path& file, const DocumentOptions& options,
                                                   uint64_t max_record_bytes);

}  // namespace athanor
