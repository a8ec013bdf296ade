#pragma once
// Unpacks an archive while its bytes come. Each file becomes a part of the target folder; nothing gets its name before
// the archive was read to its end, so that one that is damaged, or has a path that leaves the folder, changes nothing.

#include <string>
#include <vector>

#include "staging/archive_reader.h"
#include "staging/manifest.h"
#include "staging/target_folder.h"

namespace athanor::staging {

struct UnpackedEntry {
  Entry entry;
  std::string part;  ///< what a file was written to
};

/// @param archive  its name, for messages.
/// @param part_prefix  of the names of parts.
/// @return what the archive has, a path once: the last one of several.
/// @throws DataError for a damaged archive, for paths and links that leave the target folder, and for members that are
///         neither files, folders nor links; IoError if a part cannot be written. What was written stays.
std::vector<UnpackedEntry> unpack_archive(NextBytes next_bytes, const std::string& archive,
                                          const std::string& part_prefix, const TargetFolder& target);

}  // namespace athanor::staging
