#pragma once
// Reads Dolma's attribute files together with the documents that they belong to.
//
// Dolma stores documents and the results of taggers separately: documents/x/y.jsonl.gz goes with
// attributes/NAME/x/y.jsonl.gz, which has a row {"id": ..., "attributes": {...}} for each row of documents, in the same
// order.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "documents/document_options.h"
#include "documents/record_source.h"

namespace athanor::inline documents {

/// Returns the file of the attributes `name` for `documents`: the last folder called "documents" in its path is
/// replaced by "attributes/NAME". The file may be compressed differently from the documents.
/// @throws DataError if there is no such folder, no such file, or more than one.
std::filesystem::path find_attribute_file(const std::filesystem::path& documents, const std::string& name);

/// Checks that every attribute file of `documents` that the selection needs exists, before any work is done.
/// @throws DataError as find_attribute_file does.
void check_attribute_files(const std::filesystem::path& documents, const DocumentOptions& options);

/// Returns `documents`, the records of `file`, with a row of each attribute file added to each record; `documents`
/// itself if the options name no attributes.
/// @throws DataError as find_attribute_file does. The result's next() throws DataError naming file and line if the
///         numbers of rows differ.
std::unique_ptr<RecordSource> with_attributes(std::unique_ptr<RecordSource> documents,
                                              const std::filesystem::path& file, const DocumentOptions& options,
                                              uint64_t max_record_bytes);

}  // namespace athanor::inline documents
