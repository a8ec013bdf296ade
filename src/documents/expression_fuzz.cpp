// Any bytes are an expression, or are refused in one line; the same bytes as a document are judged or refused.

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "documents/expression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto newline = bytes.find('\n');
  const auto document =
      newline == std::string::npos ? nlohmann::json() : read_json(std::string_view(bytes).substr(newline + 1));
  try {
    const auto expression = Expression::parse(bytes.substr(0, newline));
    expression.holds({document.is_object() ? document : nlohmann::json::object(), "text", "a text"});
  } catch (const ExpressionError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
