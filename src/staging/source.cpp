#include "staging/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::staging {
namespace fs = std::filesystem;

namespace {

bool is_archive_name(std::string_view name) {
  constexpr std::string_view kEndings[] = {".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.xz", ".tar.bz2"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return name.size() > ending.size() && name.ends_with(ending); });
}

class Lister {
 public:
  explicit Lister(Listing& listing) : listing_(listing) {}

  void add_named(const std::string& source, bool unpack) {
    const fs::path path = fs::absolute(source).lexically_normal();
    const std::string name = path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
    ATHANOR_CHECK(!name.empty(), "SRC {} has no name that it could have in the target folder; name what is in it",
                  source);
    struct stat found {};
    ATHANOR_CHECK(::stat(path.c_str(), &found) == 0, "SRC {} cannot be used: {}; name files, folders or archives",
                  printable(source), std::strerror(errno));
    const auto [other, is_new] = names_.try_emplace(name, source);
    ATHANOR_CHECK(is_new, "SRC {} and SRC {} would both be {} in the target folder; rename one, or send it elsewhere",
                  other->second, source, name);
    add(path, name, found, S_ISREG(found.st_mode) && unpack && is_archive_name(name));
  }

 private:
  void add(const fs::path& path, const std::string& name, const struct stat& found, bool is_archive) {
    if (const std::string fault = find_path_fault(name); !fault.empty())
      fail<DataError>("{} cannot be sent: its path {}", printable(path.string()), fault);
    Entry entry;
    entry.path = name;
    entry.mode = found.st_mode & 0777;
    if (S_ISREG(found.st_mode)) {
      entry.kind = is_archive ? EntryKind::kArchive : EntryKind::kFile;
      entry.size = static_cast<uint64_t>(found.st_size);
      entry.mtime_ns = mtime_ns_of(found);
      if (is_archive && entry.size == 0)
        fail<DataError>("{} is empty, so it is no archive; leave it out, or send it as a file with --no-unpack",
                        printable(path.string()));
      entry.is_sparse = found.st_blocks * 512 < found.st_size;
      return keep(std::move(entry), path);
    }
    if (S_ISLNK(found.st_mode)) return add_link(path, std::move(entry));
    if (!S_ISDIR(found.st_mode))
      fail<DataError>("{} is no file, folder or link; leave it out", printable(path.string()));
    entry.kind = EntryKind::kFolder;
    keep(std::move(entry), path);
    add_content(path, name);
  }

  void add_link(const fs::path& path, Entry entry) {
    entry.kind = EntryKind::kLink;
    entry.mode = 0777;
    entry.target = fs::read_symlink(path).string();
    if (const std::string fault = find_link_fault(entry.path, entry.target); !fault.empty()) {
      fail<DataError>("{} is a link to {}, which {}: other nodes may not have that; put what it points to in its place",
                      printable(path.string()), printable(entry.target), fault);
    }
    keep(std::move(entry), path);
  }

  void add_content(const fs::path& folder, const std::string& name) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    for (const std::string& one : names) {
      struct stat found {};
      const fs::path path = folder / one;
      if (::lstat(path.c_str(), &found) != 0) fail_errno("cannot use", printable(path.string()));
      add(path, name + "/" + one, found, false);
    }
  }

  void keep(Entry entry, const fs::path& path) {
    listing_.manifest.entries.push_back(std::move(entry));
    listing_.origins.push_back(path.string());
  }

  Listing& listing_;
  std::map<std::string, std::string> names_;  // in the target folder, with the SRC that has each
};

}  // namespace

Listing list_sources(const std::vector<std::string>& sources, bool unpack, uint64_t chunk_bytes) {
  Listing listing;
  listing.manifest.chunk_bytes = chunk_bytes;
  Lister lister(listing);
  with_io_errors([&] {
    for (const std::string& source : sources) lister.add_named(source, unpack);
  });
  return listing;
}

std::shared_ptr<OpenedFile> SourceReader::open(size_t entry) const {
  const bool is_long = listing_.manifest.entries[entry].size > listing_.manifest.chunk_bytes;
  {
    const std::lock_guard lock(mutex_);
    if (entry == latest_entry_) return latest_;
  }
  const std::string& path = listing_.origins[entry];
  auto file = std::make_shared<OpenedFile>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file->fd() < 0) fail_errno("cannot open", printable(path));
  if (!is_long) return file;
  const std::lock_guard lock(mutex_);
  latest_entry_ = entry;
  latest_ = file;
  return file;
}

void SourceReader::read(uint64_t chunk, ChunkBuffer& buffer) const {
  for (const Piece& piece : table_.pieces(chunk)) {
    const Entry& entry = listing_.manifest.entries[piece.entry];
    const std::string& path = listing_.origins[piece.entry];
    const auto file = open(piece.entry);
    errno = fault_errno("yeet.read");
    const bool is_whole = errno == 0 && read_fully(file->fd(), buffer.payload() + piece.at, piece.bytes, piece.offset);
    if (!is_whole && errno != 0) fail_errno("cannot read", printable(path));
    struct stat found {};
    if (::fstat(file->fd(), &found) != 0) fail_errno("cannot use", printable(path));
    // A file that is written while it is read would be a mixture of two, which no node may take for the file.
    if (!is_whole || static_cast<uint64_t>(found.st_size) != entry.size || mtime_ns_of(found) != entry.mtime_ns)
      fail<DataError>("{} changed while it was sent; run the command again when it does not change", printable(path));
  }
  buffer.seal(chunk, table_.bytes(chunk));
}

}  // namespace athanor::staging
