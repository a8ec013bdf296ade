#include "staging/manifest.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace athanor::staging {
namespace {

constexpr std::string_view kMagic = "athanor-yeet 1\n";

class Writer {
 public:
  template <class Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_{kMagic};
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& from) : left_(bytes), from_(from) {
    if (take(kMagic.size()) != kMagic) complain("is none of this version");
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<uint32_t>())); }
  bool at_end() const { return left_.empty(); }
  [[noreturn]] void complain(const std::string& what) const {
    fail<DataError>("the list of files of {} {}", from_, what);
  }

 private:
  std::string_view take(size_t count) {
    if (count > left_.size()) complain("ends too early");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  std::string_view left_;
  const std::string& from_;
};

Entry read_entry(Reader& reader) {
  Entry entry;
  const auto kind = reader.number<uint8_t>();
  if (kind > static_cast<uint8_t>(EntryKind::kArchive)) reader.complain(fmt::format("has an entry of kind {}", kind));
  entry.kind = static_cast<EntryKind>(kind);
  entry.is_sparse = reader.number<uint8_t>() != 0;
  entry.mode = reader.number<uint32_t>() & 0777;
  entry.size = reader.number<uint64_t>();
  entry.mtime_ns = reader.number<int64_t>();
  entry.path = reader.text();
  entry.target = reader.text();
  if (const std::string fault = find_path_fault(entry.path); !fault.empty())
    reader.complain(fmt::format("has the path {}, which {}", printable(entry.path), fault));
  if (entry.kind != EntryKind::kLink) return entry;
  if (const std::string fault = find_link_fault(entry.path, entry.target); !fault.empty())
    reader.complain(
        fmt::format("has the link {} to {}, which {}", printable(entry.path), printable(entry.target), fault));
  return entry;
}

// Calls take(part) for each part between slashes, until it returns false.
template <class Take>
void for_parts(std::string_view path, Take take) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!take(path.substr(begin, end - begin))) return;
    begin = end + 1;
  }
}

}  // namespace

uint64_t Manifest::total_bytes() const {
  uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.size;
  return total;
}

std::string encode_manifest(const Manifest& manifest) {
  Writer writer;
  writer.number(manifest.chunk_bytes);
  writer.number(static_cast<uint64_t>(manifest.entries.size()));
  for (const Entry& entry : manifest.entries) {
    writer.number(static_cast<uint8_t>(entry.kind));
    writer.number(static_cast<uint8_t>(entry.is_sparse));
    writer.number(entry.mode);
    writer.number(entry.size);
    writer.number(entry.mtime_ns);
    writer.text(entry.path);
    writer.text(entry.target);
  }
  return writer.take();
}

Manifest decode_manifest(std::string_view bytes, const std::string& from) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 60;  // sums of sizes do not overflow
  Reader reader(bytes, from);
  Manifest manifest;
  manifest.chunk_bytes = reader.number<uint64_t>();
  const auto count = reader.number<uint64_t>();
  if (manifest.chunk_bytes == 0 || manifest.chunk_bytes > kMostBytes) reader.complain("has a wrong size of chunks");
  uint64_t total = 0;
  while (manifest.entries.size() < count) {
    manifest.entries.push_back(read_entry(reader));
    const uint64_t size = manifest.entries.back().size;
    if (size > kMostBytes || (total += size) > kMostBytes) reader.complain("has sizes that no disk has");
  }
  if (!reader.at_end()) reader.complain("has bytes behind its end");
  return manifest;
}

std::string find_path_fault(std::string_view path) {
  if (path.empty()) return "is empty";
  if (path.front() == '/') return "is absolute";
  if (path.find('\0') != path.npos) return "has a null byte";
  std::string fault;
  bool is_first = true;
  for_parts(path, [&](std::string_view part) {
    if (part == "..") fault = "leaves the target folder";
    if (part.empty() || part == ".") fault = "has an empty part, or the part .";
    if (is_first && part == kStateFolder) fault = "is in the folder of unfinished transfers";
    is_first = false;
    return fault.empty();
  });
  return fault;
}

std::string find_link_fault(std::string_view path, std::string_view target) {
  if (target.empty()) return "is empty";
  if (target.front() == '/') return "is absolute";
  if (target.find('\0') != target.npos) return "has a null byte";
  int64_t depth = -1;  // that of the folder with the link: 0 for the target folder itself
  for_parts(path, [&](std::string_view) { return ++depth, true; });
  bool leaves = false;
  for_parts(target, [&](std::string_view part) {
    if (part == "..") --depth;
    if (part != ".." && part != "." && !part.empty()) ++depth;
    leaves |= depth < 0;
    return !leaves;
  });
  return leaves ? "leaves the target folder" : "";
}

}  // namespace athanor::staging
