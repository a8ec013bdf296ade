// Any bytes that are taken for a list of files are refused in one line, or are read, stay below the target folder, and
// are written as they came.

#include "base/error.h"
#include "staging/chunk_table.h"
#include "staging/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const staging::Manifest manifest = staging::decode_manifest(bytes, "the fuzzer");
    for (const staging::Entry& entry : manifest.entries)
      if (!staging::find_path_fault(entry.path).empty()) __builtin_trap();
    if (staging::decode_manifest(staging::encode_manifest(manifest), "the fuzzer") != manifest) __builtin_trap();
    if (manifest.total_bytes() / manifest.chunk_bytes < 1000) staging::ChunkTable table(manifest);
  } catch (const DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) __builtin_trap();
  }
  return 0;
}
