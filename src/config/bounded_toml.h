#pragma once
// Parses TOML from outside with a bound on its depth: the library takes a key of any number of dots, and what visits or
// destroys the tables that it makes recurses.

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <string_view>

namespace athanor::inline config {

/// The most tables and lists that a value may lie in, by brackets and by the dots of its keys. Ours lie in at most 5.
inline constexpr int kMaxTomlDepth = 64;

/// Parses as toml::parse does. @param source  its name in positions.
/// @throws toml::parse_error for what is not TOML, and, with its line, for what lies deeper than kMaxTomlDepth.
toml::table parse_bounded_toml(std::string_view text, std::string_view source = {});

}  // namespace athanor::inline config
