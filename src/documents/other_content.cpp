#include "documents/other_content.h"

#include "base/content_kind.h"
#include "documents/document_error.h"

namespace athanor::inline documents {
namespace {

ContentKind expected_of(const InputFormat& format) {
  switch (format.compression) {
    case Compression::kGzip: return ContentKind::kGzip;
    case Compression::kZstd: return ContentKind::kZstd;
    case Compression::kNone: break;
  }
  return format.kind == InputKind::kParquet ? ContentKind::kParquet : ContentKind::kUnknown;
}

const char* shown_kind(const InputFormat& format) {
  switch (format.compression) {
    case Compression::kGzip: return "gzip";
    case Compression::kZstd: return "zstd";
    case Compression::kNone: break;
  }
  return "Parquet";
}

[[noreturn]] void refuse(const std::string& what) { throw DocumentError(kOtherContent, what); }

}  // namespace

void check_stored_content(std::string_view first_bytes, const std::string& name, const InputFormat& format) {
  const auto expected = expected_of(format);
  if (expected == ContentKind::kUnknown) return;  // its bytes are those of the documents
  const auto kind = recognise_content(first_bytes);
  if (kind == expected) return;
  if (kind != ContentKind::kUnknown) refuse(fmt::format("{} is {}", name, describe_content(kind)));
  if (looks_like_text(first_bytes)) {
    refuse(fmt::format("{} is text, not {}; give its name the ending of what it holds, such as .jsonl or .txt", name,
                       shown_kind(format)));
  }
}

void check_document_content(std::string_view first_bytes, const std::string& name, const InputFormat& format) {
  const auto kind = recognise_content(first_bytes);
  const bool is_text = kind == ContentKind::kUnknown || (kind == ContentKind::kHtml && format.kind == InputKind::kText);
  if (is_text) return;
  if (format.compression != Compression::kNone)
    refuse(fmt::format("{}: what is compressed in it is {}", name, describe_content(kind)));
  const char* ending = kind == ContentKind::kGzip ? ".gz" : kind == ContentKind::kZstd ? ".zst" : nullptr;
  if (ending) {
    refuse(fmt::format("{} is compressed by {}; give its name the ending {} too", name,
                       kind == ContentKind::kGzip ? "gzip" : "zstd", ending));
  }
  refuse(fmt::format("{} is {}", name, describe_content(kind)));
}

}  // namespace athanor::inline documents
