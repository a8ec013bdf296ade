#include "tokenizer/pattern.h"

#include "base/error.h"

namespace athanor::inline tokenizer {

Pattern Pattern::parse(const JsonNode& node) {
  const auto literal = node.find("String");
  const auto source = literal ? *literal : node.at("Regex");
  const auto& text = source.as_string();
  try {
    return Pattern(literal ? text : "", Regex(literal ? escape_regex(text) : text));
  } catch (const DataError& error) {
    source.complain("{}", error.what());
  }
}

}  // namespace athanor::inline tokenizer
