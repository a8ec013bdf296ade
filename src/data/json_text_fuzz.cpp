// Any bytes that are taken for a row either hold a text that is UTF-8, or are refused in one line.

#include "base/text.h"
#include "data/documents.h"
#include "data/json_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto document = parse_document({.bytes = bytes, .is_json = true, .in_array = size % 2 == 0}, "fuzz", {});
    if (find_invalid_utf8(document.text)) __builtin_trap();
  } catch (const DocumentError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
