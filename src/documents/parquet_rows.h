#pragma once
// The rows of a Parquet file, each as a JSON object of all its columns, with lists and structs.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "documents/record_source.h"

namespace athanor::inline documents {

/// Records have `is_row` set, and `bytes` with the object. Memory: one batch of rows. The first next() of a process
/// loads libathanor_parquet.so.
/// @throws DataError if this build has no such library; DocumentError naming the file; IoError.
std::unique_ptr<RecordSource> open_parquet_rows(const std::filesystem::path& file, uint64_t max_record_bytes);

}  // namespace athanor::inline documents
