#pragma once
// Opens libathanor_parquet.so, which is next to libathanor, when the first Parquet file is read.

#include <filesystem>
#include <string>

namespace athanor::inline documents {

/// Returns the address of a function that the library exports. @param file  for messages: what is to be read.
/// @throws DataError with the remedy if this build has no such library.
void* parquet_function(const std::string& file, const char* name);

/// Returns the size of a Parquet file. @throws DataError if it is not a regular file, DocumentError if it is empty or
/// of another kind, IoError if it cannot be opened: libparquet's messages would be less clear.
uint64_t parquet_size(const std::filesystem::path& file);

}  // namespace athanor::inline documents
