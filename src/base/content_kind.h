#pragma once
// What a file holds by its first bytes, for error messages: a file that was never downloaded, or whose name does not
// tell how it is compressed, is named as that and not as damaged.

#include <cstddef>
#include <string>
#include <string_view>

namespace athanor {

enum class ContentKind {
  kUnknown,
  kLfsPointer,
  kGzip,
  kZstd,
  kXz,
  kBzip2,
  kLz4,
  kZip,
  kTar,
  kParquet,
  kArrow,
  kPdf,
  kUtf16,
  kHtml
};

/// The first bytes that recognise_content() looks at.
inline constexpr size_t kContentBytes = 512;

/// Returns what begins with `first_bytes`. All kinds but the pointers of Git LFS, PDF and HTML begin with bytes that no
/// text has at these places.
ContentKind recognise_content(std::string_view first_bytes);

/// Returns what it is and what to do, to follow a file's name: "a pointer of Git LFS, not the file itself; get the file
/// with `git lfs pull`". The kind must be known.
std::string describe_content(ContentKind kind);

/// True for bytes that may be a text: there is one, they have no control characters but blanks, and they are UTF-8 as
/// far as they go.
bool looks_like_text(std::string_view first_bytes);

}  // namespace athanor
