// Any bytes that are taken for a row either hold a text that is UTF-8, or are refused in one line; and the fast ways to
// read a row find what the parser finds.

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/text.h"
#include "documents/documents.h"
#include "documents/json_fields.h"
#include "documents/json_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!find_invalid_utf8(bytes)) {
    for (const std::string field : {"text", "a.b"}) {
      const auto fast = scan_json_text(bytes, field);
      const auto slow = parse_json_text(bytes, field, false);
      if (fast && (slow.cause || slow.text != *fast)) __builtin_trap();
    }
    // What only Python's json accepts is read where no field is asked for, and not by the parser.
    auto expected = read_json(bytes);  // it may be too deep
    if (!parse_json_text(bytes, "text", false).cause && !expected.is_discarded()) {
      std::erase_if(expected.get_ref<nlohmann::json::object_t&>(),
                    [](const auto& member) { return member.first != "id" && member.first != "text"; });
      if (read_json_fields(bytes, {"id", "text"}) != expected) __builtin_trap();
    }
  }
  try {
    const auto document = parse_document({.bytes = bytes, .is_json = true, .in_array = size % 2 == 0}, "fuzz", {});
    if (find_invalid_utf8(document.text)) __builtin_trap();
  } catch (const DocumentError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
