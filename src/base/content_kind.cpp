#include "base/content_kind.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace athanor {
namespace {

using namespace std::string_view_literals;

struct Signature {
  ContentKind kind;
  size_t offset;
  std::string_view bytes;
};

// From the specifications: Git LFS's spec.md, RFC 1952 (gzip), RFC 8878 (zstd), the file formats of xz, bzip2 (with the
// digits of pi that begin its first block), LZ4 frames, ZIP, POSIX ustar, Parquet, Arrow and PDF; byte-order marks.
constexpr Signature kSignatures[] = {
    {ContentKind::kLfsPointer, 0, "version https://git-lfs.github.com/spec/"sv},
    {ContentKind::kGzip, 0, "\x1F\x8B\x08"sv},
    {ContentKind::kZstd, 0, "\x28\xB5\x2F\xFD"sv},
    {ContentKind::kXz, 0,
     "\xFD"
     "7zXZ\0"sv},
    {ContentKind::kBzip2, 4, "\x31\x41\x59\x26\x53\x59"sv},
    {ContentKind::kLz4, 0, "\x04\x22\x4D\x18"sv},
    {ContentKind::kZip, 0, "PK\x03\x04"sv},
    {ContentKind::kTar, 257, "ustar"sv},
    {ContentKind::kParquet, 0, "PAR1"sv},
    {ContentKind::kArrow, 0, "ARROW1\0\0"sv},
    {ContentKind::kPdf, 0, "%PDF-"sv},
    {ContentKind::kUtf16, 0, "\xFF\xFE"sv},
    {ContentKind::kUtf16, 0, "\xFE\xFF"sv},
};

// A frame that holds none of the content, which pzstd writes first: 0x184D2A50 to 0x184D2A5F.
bool is_skippable_zstd(std::string_view bytes) {
  return bytes.size() >= 4 && (static_cast<unsigned char>(bytes[0]) & 0xF0) == 0x50 &&
         bytes.substr(1, 3) == "\x2A\x4D\x18"sv;
}

bool is_html(std::string_view bytes) {
  const auto begin = std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size());
  std::string word(bytes.substr(begin, 14));
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word.starts_with("<!doctype html") || word.starts_with("<html");
}

}  // namespace

ContentKind recognise_content(std::string_view first_bytes) {
  for (const auto& [kind, offset, bytes] : kSignatures) {
    if (first_bytes.size() > offset && first_bytes.substr(offset).starts_with(bytes)) return kind;
  }
  if (is_skippable_zstd(first_bytes)) return ContentKind::kZstd;
  return is_html(first_bytes) ? ContentKind::kHtml : ContentKind::kUnknown;
}

std::string describe_content(ContentKind kind) {
  switch (kind) {
    case ContentKind::kLfsPointer: return "a pointer of Git LFS, not the file itself; get the file with `git lfs pull`";
    case ContentKind::kGzip: return "compressed by gzip; decompress it (gzip -d)";
    case ContentKind::kZstd: return "compressed by zstd; decompress it (zstd -d)";
    case ContentKind::kXz: return "compressed by xz; decompress it (xz -d)";
    case ContentKind::kBzip2: return "compressed by bzip2; decompress it (bzip2 -d)";
    case ContentKind::kLz4: return "compressed by lz4; decompress it (lz4 -d)";
    case ContentKind::kZip: return "a ZIP archive; unpack it";
    case ContentKind::kTar: return "a tar archive; unpack it";
    case ContentKind::kParquet: return "a Parquet file; give its name the ending .parquet";
    case ContentKind::kArrow: return "an Arrow file; write the rows as Parquet or JSON lines";
    case ContentKind::kPdf: return "a PDF document; extract its text";
    case ContentKind::kUtf16: return "text in UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)";
    case ContentKind::kHtml:
      return "an HTML page, which a server may send in the place of a file; get the file by its own address";
    case ContentKind::kUnknown: break;
  }
  ATHANOR_ASSERT(false);
}

bool looks_like_text(std::string_view first_bytes) {
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f';
  };
  if (first_bytes.empty() || std::any_of(first_bytes.begin(), first_bytes.end(), is_control)) return false;
  const auto invalid = find_invalid_utf8(first_bytes);
  if (!invalid || *invalid == 0) return !invalid;
  constexpr size_t kLongestCharacter = 4;
  constexpr unsigned char kFirstLead = 0xC2;
  const bool is_cut_character = *invalid + kLongestCharacter > first_bytes.size() &&
                                static_cast<unsigned char>(first_bytes[*invalid]) >= kFirstLead;
  return is_cut_character;
}

}  // namespace athanor
