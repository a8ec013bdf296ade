// Any bytes either are a manifest that reads back as it was written, or are refused with a DataError.

#include "base/error.h"
#include "dataset/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  try {
    const auto manifest = parse_data_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto text = data_manifest_text(manifest);
    if (data_manifest_text(parse_data_manifest(text, "fuzz")) != text) __builtin_trap();
  } catch (const DataError&) {
  }
  return 0;
}
