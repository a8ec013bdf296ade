#include "documents/parquet_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/own_folder.h"
#include "documents/document_error.h"
#include "documents/other_content.h"

namespace athanor::inline documents {
namespace fs = std::filesystem;

void* parquet_function(const std::string& file, const char* name) {
  const auto library = own_folder() / "libathanor_parquet.so";
  std::error_code ignored;
  ATHANOR_CHECK_DATA(fs::exists(library, ignored),
                     "{}: this program was built without Parquet ({} is missing); run `scripts/setup --parquet` and "
                     "build again, or turn the file into .jsonl.zst",
                     file, library.string());
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail<Error>("cannot open {}: {}; run `scripts/setup --parquet` and build again", library.string(), ::dlerror());
  void* function = ::dlsym(handle, name);
  if (!function) fail<Error>("{} is of another version; build again", library.string());
  return function;
}

uint64_t parquet_size(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno("cannot open", file.string());
  std::array<char, kContentBytes> first;
  const ssize_t num_first = ::pread(fd, first.data(), first.size(), 0);
  ::close(fd);
  ATHANOR_CHECK_DATA(fs::is_regular_file(file), "{}: Parquet is read from its end: name a regular file", file.string());
  const auto size = fs::file_size(file);
  if (size == 0)
    throw DocumentError(kNoDocuments,
                        file.string() + " is empty; leave it out, or pass over such files with --on-error skip");
  check_stored_content({first.data(), static_cast<size_t>(std::max<ssize_t>(0, num_first))}, file.string(),
                       {InputKind::kParquet});
  return size;
}

}  // namespace athanor::inline documents
