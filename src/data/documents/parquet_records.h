#pragma once
// The rows of a Parquet file as records.

#include <filesystem>
#include <memory>

#include "data/documents/document_options.h"
#include "data/documents/record_source.h"

namespace athanor {

/// Opens libathanor_parquet.so beside the program on first use.
/// @throws DocumentError naming the file, with the remedy where this build has no such library.
std::unique_ptr<RecordSource> open_parquet_records(const std::filesystem::path& file, const DocumentOptions& options,
                                                   uint64_t max_record_bytes);

}  // namespace athanor
