#pragma once
// Dolma's attribute files, read beside the documents they belong to.
//
// Dolma keeps documents and what taggers say of them apart: documents/x/y.jsonl.gz goes with
// attributes/NAME/x/y.jsonl.gz, which has a row {"id": ..., "attributes": {...}} for each row of documents, in the same
// order.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/documents/document_options.h"
#include "data/documents/record_source.h"

namespace athanor {

/// The file of the attributes `name` for `documents`: the last folder called "documents" in its path replaced by
/// "attributes/NAME". It may be compressed in another way than the documents.
/// @throws DataError if there is no such folder, no such file, or more than one.
std::filesystem::path find_attribute_file(const std::filesystem::path& documents, const std::string& name);

/// That the attribute files of `documents` are there, before any work is done.
/// @throws DataError.
void check_attribute_files(const std::filesystem::path& documents, const DocumentOptions& options);

/// `documents`, with a row of each attribute file in each record; itself if the options name no attributes.
/// @throws DataError (also from next) naming file and line where the numbers of rows differ.
std::unique_ptr<RecordSource> with_attributes(std::unique_ptr<RecordSource> documents,
                                              const std::filesystem::path& file, const DocumentOptions& options,
                                              uint64_t max_record_bytes);

}  // namespace athanor
