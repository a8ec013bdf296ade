#include "staging/present_files.h"

#include <fcntl.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "staging/chunk.h"

namespace athanor::staging {
namespace fs = std::filesystem;
namespace {

constexpr int kReadersOfTable = 4;  // threads that compare

bool is_there(const TargetFolder& target, const Entry& entry, bool any_time) {
  const auto present = target.look(entry.path);
  if (!present) return false;
  if (entry.kind == EntryKind::kFolder) {
    ATHANOR_CHECK_DATA(S_ISDIR(present->st_mode), "{} is in the way of a folder; give another --to, or move it away",
                       target.shown(entry.path));
    return true;
  }
  ATHANOR_CHECK_DATA(!S_ISDIR(present->st_mode),
                     "{} is a folder in the way of a file; give another --to, or move it away",
                     target.shown(entry.path));
  if (entry.kind == EntryKind::kLink) return S_ISLNK(present->st_mode);  // its target is compared when links are made
  return S_ISREG(present->st_mode) && static_cast<uint64_t>(present->st_size) == entry.size &&
         (any_time || mtime_ns_of(*present) == entry.mtime_ns);
}

bool is_unpacked(const TargetFolder& target, const Entry& archive) {
  const fs::path record = target.path() / kStateFolder / record_name(archive);
  std::error_code ignored;
  if (!fs::is_regular_file(record, ignored)) return false;
  const Manifest unpacked = decode_manifest(read_file(record), printable(record.string()));
  return !unpacked.entries.empty() && unpacked.entries[0] == archive &&
         std::all_of(unpacked.entries.begin() + 1, unpacked.entries.end(),
                     [&](const Entry& entry) { return is_there(target, entry, false); });
}

// Files of which a chunk differs are sent again. An archive is compared by its record alone: its own bytes are not
// here.
void compare_bytes(const Manifest& manifest, const ChunkTable& table, const TargetFolder& target,
                   const std::vector<HashWords>& hashes, std::vector<bool>& present) {
  std::vector<char> differs(table.size());
  parallel_for(kReadersOfTable, static_cast<int64_t>(table.size()), [&](int64_t chunk) {
    const auto pieces = table.pieces(static_cast<uint64_t>(chunk));
    if (std::none_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return present[piece.entry]; })) return;
    ChunkBuffer buffer(table.bytes(static_cast<uint64_t>(chunk)));
    bool is_whole = true;
    for (const Piece& piece : pieces) {
      const Entry& entry = manifest.entries[piece.entry];
      if (entry.kind == EntryKind::kArchive && present[piece.entry]) return;
      const fs::path path = target.path() / entry.path;
      const OpenedFile file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
      is_whole =
          is_whole && file.fd() >= 0 && read_fully(file.fd(), buffer.payload() + piece.at, piece.bytes, piece.offset);
    }
    if (is_whole) buffer.seal(static_cast<uint64_t>(chunk), table.bytes(static_cast<uint64_t>(chunk)));
    differs[static_cast<size_t>(chunk)] = !is_whole || buffer.header().hash != hashes[static_cast<size_t>(chunk)];
  });
  for (size_t i = 0; i < present.size(); ++i) {
    const auto [begin, end] = table.chunks_of(i);
    for (uint64_t chunk = begin; chunk < end; ++chunk)
      if (differs[chunk]) present[i] = false;
  }
}

}  // namespace

std::string record_name(const Entry& archive) { return kRecordPrefix + hash_hex(archive.path); }

std::vector<bool> find_present(const Manifest& manifest, const ChunkTable& table, const TargetFolder& target,
                               const std::vector<HashWords>* hashes) {
  std::vector<bool> present(manifest.entries.size());
  for (size_t i = 0; i < present.size(); ++i) {
    const Entry& entry = manifest.entries[i];
    present[i] =
        entry.kind == EntryKind::kArchive ? is_unpacked(target, entry) : is_there(target, entry, hashes != nullptr);
  }
  if (hashes) compare_bytes(manifest, table, target, *hashes, present);
  return present;
}

}  // namespace athanor::staging
