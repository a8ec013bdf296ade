#include "staging/archive_reader.h"

#include <dlfcn.h>

#include <utility>

#include "base/error.h"
#include "base/own_folder.h"

namespace athanor::staging {

std::unique_ptr<ArchiveReader> open_archive(NextBytes next_bytes) {
  const std::string library = own_folder() / "libathanor_archive.so";
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fail<ConfigError>(
        "archives cannot be unpacked here: {}; install libarchive-dev and build again, or send it with --no-unpack",
        ::dlerror());
  }
  const auto open = reinterpret_cast<OpenArchive>(::dlsym(handle, kOpenArchive));
  if (open == nullptr) fail<ConfigError>("{} has no {}: it is of another build; build again", library, kOpenArchive);
  return std::unique_ptr<ArchiveReader>(open(std::move(next_bytes)));
}

}  // namespace athanor::staging
