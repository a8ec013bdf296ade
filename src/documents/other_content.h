#pragma once
// Refuses a file that holds something else than its name tells, as its first bytes show, before anything in it is
// called damaged. One such content would even be trained on: a pointer of Git LFS, or a tar archive, whose name ends in
// .txt.

#include <string>
#include <string_view>

#include "documents/inputs.h"

namespace athanor::inline documents {

/// Checks the first bytes of a file of `format`, before they are decompressed. @param name  for messages.
/// @throws DocumentError (kOtherContent) with what the file is and what to do.
void check_stored_content(std::string_view first_bytes, const std::string& name, const InputFormat& format);

/// Checks the first bytes of the documents in it, which may have been decompressed. HTML is a text like others.
/// @throws DocumentError as above.
void check_document_content(std::string_view first_bytes, const std::string& name, const InputFormat& format);

}  // namespace athanor::inline documents
