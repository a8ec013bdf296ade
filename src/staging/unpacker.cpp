#include "staging/unpacker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"

namespace athanor::staging {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

// "./a//b/" → "a/b": the ways in which archives write the same path.
std::string plain_path(std::string_view path) {
  std::string plain;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (begin == 0 && part.empty()) plain += '/';  // an absolute path stays one, which is refused
    if (!part.empty() && part != ".") {
      if (!plain.empty() && plain.back() != '/') plain += '/';
      plain += part;
    }
    begin = end + 1;
  }
  return plain;
}

class Unpacker {
 public:
  Unpacker(const std::string& archive, const std::string& part_prefix, const TargetFolder& target)
      : archive_(archive), part_prefix_(part_prefix), target_(target), block_(kBlock, '\0') {}

  std::vector<UnpackedEntry> unpack(NextBytes next_bytes) {
    const auto reader = with_archive_errors([&] { return open_archive(std::move(next_bytes)); });
    ArchiveMember member;
    while (with_archive_errors([&] { return reader->next(member); })) add(*reader, member);
    std::vector<UnpackedEntry> kept;
    for (UnpackedEntry& one : entries_)
      if (!one.entry.path.empty()) kept.push_back(std::move(one));
    return kept;
  }

 private:
  template <class Read>
  auto with_archive_errors(Read read) -> decltype(read()) {
    try {
      return read();
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& error) {
      fail<DataError>("{} cannot be unpacked: {}", printable(archive_), printable(error.what()));
    }
  }

  void add(ArchiveReader& reader, const ArchiveMember& member) {
    UnpackedEntry one;
    Entry& entry = one.entry;
    entry.path = plain_path(member.path);
    if (entry.path.empty()) return;  // the folder that was packed
    if (const std::string fault = find_path_fault(entry.path); !fault.empty()) refuse(member, fault);
    entry.mode = member.mode;
    entry.mtime_ns = member.mtime_ns;
    switch (member.kind) {
      case ArchiveMember::Kind::kFolder: entry.kind = EntryKind::kFolder; break;
      case ArchiveMember::Kind::kFile: read_file(reader, one); break;
      case ArchiveMember::Kind::kLink:
        entry.kind = EntryKind::kLink;
        entry.target = member.target;
        if (const std::string fault = find_link_fault(entry.path, entry.target); !fault.empty())
          refuse(member, fmt::format("is a link to {}, which {}", printable(entry.target), fault));
        break;
      case ArchiveMember::Kind::kHardLink: repeat_file(member, one); break;
      case ArchiveMember::Kind::kOther: refuse(member, "is no file, folder or link");
    }
    if (entry.kind != EntryKind::kFile) entry.mtime_ns = 0;
    keep(std::move(one));
  }

  void keep(UnpackedEntry one) {
    const auto [at, is_new] = places_.try_emplace(one.entry.path, entries_.size());
    if (is_new) return entries_.push_back(std::move(one));
    UnpackedEntry& earlier = entries_[at->second];
    if (one.entry.kind == EntryKind::kFolder && earlier.entry.kind == EntryKind::kFolder) {
      earlier.entry.mode = one.entry.mode;
      return;
    }
    if (!earlier.part.empty()) target_.remove_part(earlier.part);
    earlier.entry.path.clear();
    at->second = entries_.size();
    entries_.push_back(std::move(one));
  }

  std::string next_part() { return part_prefix_ + std::to_string(next_part_++); }

  void read_file(ArchiveReader& reader, UnpackedEntry& one) {
    one.part = next_part();
    const auto file = target_.open_part(one.part, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file) fail_errno("cannot create a part of", target_.shown(one.entry.path));
    while (const size_t got = with_archive_errors([&] { return reader.read(block_.data(), block_.size()); })) {
      errno = fault_errno("yeet.write");
      if (errno != 0 || !write_fully(file->fd(), block_.data(), got, one.entry.size))
        fail_errno("cannot write", target_.shown(one.entry.path));
      one.entry.size += got;
    }
    const struct timespec times[2] = {{0, UTIME_OMIT}, timespec_of(one.entry.mtime_ns)};
    if (::fchmod(file->fd(), one.entry.mode) != 0 || ::futimens(file->fd(), times) != 0)
      fail_errno("cannot set mode and time of", target_.shown(one.entry.path));
  }

  void repeat_file(const ArchiveMember& member, UnpackedEntry& one) {
    const auto found = places_.find(plain_path(member.target));
    if (found == places_.end() || entries_[found->second].part.empty())
      refuse(member, fmt::format("repeats {}, which is no file before it", printable(member.target)));
    const UnpackedEntry& first = entries_[found->second];
    one.entry.mode = first.entry.mode;
    one.entry.mtime_ns = first.entry.mtime_ns;
    one.entry.size = first.entry.size;
    one.part = next_part();
    target_.remove_part(one.part);
    if (::linkat(target_.parts(), first.part.c_str(), target_.parts(), one.part.c_str(), 0) != 0)
      fail_errno("cannot make", target_.shown(one.entry.path));
  }

  [[noreturn]] void refuse(const ArchiveMember& member, const std::string& fault) const {
    fail<DataError>("{} is not unpacked: its member {} {}", printable(archive_), printable(member.path), fault);
  }

  const std::string& archive_;
  const std::string& part_prefix_;
  const TargetFolder& target_;
  std::string block_;
  std::vector<UnpackedEntry> entries_;
  std::map<std::string, size_t> places_;
  int64_t next_part_ = 0;
};

}  // namespace

std::vector<UnpackedEntry> unpack_archive(NextBytes next_bytes, const std::string& archive,
                                          const std::string& part_prefix, const TargetFolder& target) {
  return Unpacker(archive, part_prefix, target).unpack(std::move(next_bytes));
}

}  // namespace athanor::staging
