#pragma once
// Text utilities: figures for people, the nearest name to a mistyped one, UTF-8.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// 7864320000 → "7.32GiB".
std::string format_bytes(double bytes);

/// 11636.4 → "11,636".
std::string format_thousands(double value);

/// 202.784 → "202.78", 0.05012 → "0.0501": two decimals, or below 1 as many as show three digits.
std::string format_digits(double value);

/// 8.294e11 → "829.40 GFLOP/s".
std::string format_flop_rate(double flops_per_second);

/// 3723.4 s → "1:02:03".
std::string format_duration(double seconds);

/// Returns the candidate with the smallest edit distance to `name`, if that is small enough for a typing error: at most
/// 2, or a third of its length if that is more.
std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// Returns ` (did you mean "x"?)`, or "" if no candidate is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

/// Returns the divisors of a value as text: "1, 2, 3, 6". For a value above 65,536 it returns "the divisors of
/// <value>".
std::string divisors_of(int64_t value);

/// Joins the first `most` parts, and counts the others: with "; " as separator, "a; b; and 3 more".
std::string join_first(const std::vector<std::string>& parts, size_t most, std::string_view separator = ", ");

/// Returns the offset of the first byte that is not well-formed UTF-8 (Unicode 15, table 3-7), or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Appends `code_point` (at most 0x10FFFF) to `out` as UTF-8.
void append_utf8(std::string& out, uint32_t code_point);

/// Returns `text` on one line, with control characters as \n, \t or \x1f. For names that come from a user's file.
std::string printable(std::string_view text);

/// Returns the text before the first line break: libtorch's messages continue with a stack.
std::string first_line(std::string_view text);

/// True if the whole `text` matches `pattern`, in which `*` matches any bytes, also none, and `?` exactly one.
bool matches_wildcard(std::string_view pattern, std::string_view text);

}  // namespace athanor
