// Archives by libarchive: tar of every dialect, plain or compressed.

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "staging/archive_reader.h"

namespace athanor::staging {
namespace {

constexpr int64_t kMostSeconds = 9'000'000'000;  // nanoseconds fit into 64 bits

/// While it lives, this thread has the character set in which newer archives keep names: libarchive would lose letters
/// that the locale of a batch job has not.
class Utf8Names {
 public:
  Utf8Names() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(::uselocale(locale_)) {}
  ~Utf8Names() {
    ::uselocale(before_);
    if (locale_) ::freelocale(locale_);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  ::locale_t locale_, before_;
};

class TarReader : public ArchiveReader {
 public:
  explicit TarReader(NextBytes next_bytes) : next_bytes_(std::move(next_bytes)), archive_(::archive_read_new()) {
    ::archive_read_support_format_tar(archive_);
    ::archive_read_support_filter_gzip(archive_);
    ::archive_read_support_filter_zstd(archive_);
    ::archive_read_support_filter_xz(archive_);
    ::archive_read_support_filter_bzip2(archive_);
    check(::archive_read_open(archive_, this, nullptr, &TarReader::give_bytes, nullptr));
  }
  ~TarReader() override { ::archive_read_free(archive_); }
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  bool next(ArchiveMember& member) override {
    const Utf8Names names;
    ::archive_entry* entry = nullptr;
    const int code = ::archive_read_next_header(archive_, &entry);
    check(code);
    if (code == ARCHIVE_EOF) return false;
    member = {};
    member.kind = kind_of(entry);
    member.path = text_of(::archive_entry_pathname(entry));
    if (member.path.empty()) throw std::runtime_error("it has a member without a name that can be read");
    const bool is_hard_link = member.kind == ArchiveMember::Kind::kHardLink;
    member.target = text_of(is_hard_link ? ::archive_entry_hardlink(entry) : ::archive_entry_symlink(entry));
    member.mode = ::archive_entry_perm(entry) & 0777;
    const auto mtime_s = std::clamp<int64_t>(::archive_entry_mtime(entry), -kMostSeconds, kMostSeconds);
    member.mtime_ns = mtime_s * 1'000'000'000 + ::archive_entry_mtime_nsec(entry);
    return true;
  }

  size_t read(void* out, size_t room) override {
    const auto got = ::archive_read_data(archive_, out, room);
    if (got < 0) check(static_cast<int>(got));
    return static_cast<size_t>(got);
  }

 private:
  void check(int code) {
    if (failure_) std::rethrow_exception(failure_);
    if (code == ARCHIVE_OK || code == ARCHIVE_EOF) return;
    // A warning of a header is about names in a character set that this process has not: bytes are kept as they are.
    if (code == ARCHIVE_WARN) return;
    const char* text = ::archive_error_string(archive_);
    throw std::runtime_error(text ? text : "it cannot be read");
  }

  static ArchiveMember::Kind kind_of(::archive_entry* entry) {
    if (::archive_entry_hardlink(entry)) return ArchiveMember::Kind::kHardLink;
    switch (::archive_entry_filetype(entry)) {
      case AE_IFREG: return ArchiveMember::Kind::kFile;
      case AE_IFDIR: return ArchiveMember::Kind::kFolder;
      case AE_IFLNK: return ArchiveMember::Kind::kLink;
      default: return ArchiveMember::Kind::kOther;
    }
  }

  static std::string text_of(const char* text) { return text ? text : ""; }

  static la_ssize_t give_bytes(::archive* archive, void* self, const void** bytes) {
    auto& reader = *static_cast<TarReader*>(self);
    try {  // no exception may pass through libarchive
      const std::string_view next = reader.next_bytes_();
      *bytes = next.data();
      return static_cast<la_ssize_t>(next.size());
    } catch (...) {
      reader.failure_ = std::current_exception();
      ::archive_set_error(archive, ARCHIVE_FATAL, "its bytes did not come");
      return -1;
    }
  }

  NextBytes next_bytes_;
  std::exception_ptr failure_;
  ::archive* archive_;
};

}  // namespace
}  // namespace athanor::staging

extern "C" athanor::staging::ArchiveReader* athanor_open_archive(athanor::staging::NextBytes next_bytes) {
  return new athanor::staging::TarReader(std::move(next_bytes));
}
