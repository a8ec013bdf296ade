#pragma once
// The list of what is sent: folders, files, links and archives, by their paths below the target folder.
//
// The first node makes it and sends it to all others before any content. Those compare it with their disks, so it has
// what tells whether a file is the same: size and time of change. Names are bytes, as on disk.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::staging {

enum class EntryKind : uint8_t {
  kFolder,
  kFile,
  kLink,
  kArchive,  ///< is unpacked into the target folder; its path is its name
};

struct Entry {
  EntryKind kind = EntryKind::kFile;
  std::string path;         ///< relative to the target folder; find_path_fault() has no objection
  uint32_t mode = 0;        ///< permission bits, without set-user-ID and set-group-ID
  uint64_t size = 0;        ///< bytes of a file or an archive, else 0
  int64_t mtime_ns = 0;     ///< time of change of a file or an archive
  bool is_sparse = false;   ///< occupies less of the disk than its size
  std::string target = {};  ///< where a link points
  bool has_content() const { return size > 0 && (kind == EntryKind::kFile || kind == EntryKind::kArchive); }
  bool operator==(const Entry&) const = default;
};

struct Manifest {
  uint64_t chunk_bytes = 0;
  std::vector<Entry> entries;  ///< a folder comes before what is in it

  uint64_t total_bytes() const;
  bool operator==(const Manifest&) const = default;
};

std::string encode_manifest(const Manifest& manifest);
/// @param from  its source, for messages. @throws DataError for bytes that encode_manifest has not written, for a path
///              that leaves the target folder, and for a link that does.
Manifest decode_manifest(std::string_view bytes, const std::string& from);

/// Returns why a path may not be written below the target folder: empty, absolute, with "..", "." or empty parts, with
/// a null byte, or below the folder in which the state of a transfer is kept. Empty if it may.
std::string find_path_fault(std::string_view path);
/// Returns why a link at `path` may not point to `target`: it is absolute, or leaves the target folder. Empty if it
/// may.
std::string find_link_fault(std::string_view path, std::string_view target);

/// The folder below the target folder that has the parts of a transfer which is not complete.
inline constexpr const char* kStateFolder = ".athanor-yeet";

}  // namespace athanor::staging
