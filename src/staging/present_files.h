#pragma once
// What a node has already, and what therefore is not sent to it.
//
// A file is the same if its size and time of change are those of the source, as rsync decides by default; with hashes
// of the source its bytes decide. An archive is there if the record of its last unpacking names the same archive, and
// all that the record lists is there.

#include <string>
#include <vector>

#include "base/hash.h"
#include "staging/chunk_table.h"
#include "staging/target_folder.h"

namespace athanor::staging {

/// Returns by entry whether it is there. Changes nothing.
/// @param hashes  of the source's chunks, as their headers have them; null: size and time of change decide.
/// @throws DataError if something is in the way.
std::vector<bool> find_present(const Manifest& manifest, const ChunkTable& table, const TargetFolder& target,
                               const std::vector<HashWords>* hashes);

inline constexpr const char* kRecordPrefix = "unpacked-";
/// Returns the name, in the folder of parts, of the record of an archive's last unpacking: a manifest with the archive
/// and what came out of it.
std::string record_name(const Entry& archive);

}  // namespace athanor::staging
