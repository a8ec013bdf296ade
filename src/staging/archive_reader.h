#pragma once
// The interface of libathanor_archive.so, which reads archives with libarchive.
//
// The front end opens that library when the first archive is unpacked, so that it starts without libarchive and what
// that needs (libxml2 and 30 MB of ICU). Both sides are built together, so plain C++ types and exceptions may cross the
// interface.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace athanor::staging {

struct ArchiveMember {
  enum class Kind { kFolder, kFile, kLink, kHardLink, kOther };
  Kind kind = Kind::kFile;
  std::string path,
      target;  ///< as in the archive; the target of a link, or the path of the file that a hard link repeats
  uint32_t mode = 0;
  int64_t mtime_ns = 0;
};

/// Returns the next bytes of the archive, which stay valid until the next call; empty at its end. It may wait for them.
using NextBytes = std::function<std::string_view()>;

class ArchiveReader {
 public:
  virtual ~ArchiveReader() = default;
  /// Goes to the next member. @return false at the end. @throws std::runtime_error for what is no archive, or a damaged
  /// one.
  virtual bool next(ArchiveMember& member) = 0;
  /// Reads bytes of the member, holes as zeros. @return 0 at its end.
  virtual size_t read(void* out, size_t room) = 0;
};

/// The function that the library exports under the name kOpenArchive.
using OpenArchive = ArchiveReader* (*)(NextBytes next_bytes);
inline constexpr const char* kOpenArchive = "athanor_open_archive";

/// Opens the library. @throws ConfigError if it is missing, with what installs it.
std::unique_ptr<ArchiveReader> open_archive(NextBytes next_bytes);

}  // namespace athanor::staging
