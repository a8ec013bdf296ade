#pragma once
// Python literals: ast.literal_eval, which lm_eval applies to what templates print, and the escapes of strings.

#include <optional>
#include <string>
#include <string_view>

#include "tasks/value.h"

namespace athanor::tasks {

/// ast.literal_eval(text). None if Python would raise (SyntaxError, ValueError).
/// @throws PythonError for a literal of Python that this form does not have (bytes, sets, complex numbers).
std::optional<Value> read_literal(std::string_view text);

/// Replaces the escapes of a Python string, given without its quotes.
/// @throws PythonError for an escape that is wrong or has no text (half of a surrogate pair, \N{...}).
std::string replace_escapes(std::string_view body);

}  // namespace athanor::tasks
