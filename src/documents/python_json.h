#pragma once
// What Python's json writes and JSON does not have: the words NaN, Infinity and -Infinity, and escapes of one half of a
// surrogate pair. And what JSON has and the parsers refuse: numbers beyond a double, such as 1e999.

#include <optional>
#include <string>
#include <string_view>

namespace athanor::inline documents {

/// Returns `row` with each such number replaced by 0, and each half of a pair by `replacement`, an escape of six bytes;
/// none if it has none of these. Everything else stays as it is, also what is no JSON.
std::optional<std::string> without_python_values(std::string_view row, std::string_view replacement);

}  // namespace athanor::inline documents
