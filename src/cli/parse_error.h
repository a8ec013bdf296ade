#pragma once
// What the program answers to a command line that it does not understand.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace athanor::inline cli {

/// Returns the one line for a command line that `app` refused with `error`. An option that does not exist is named
/// first, with the nearest one that does: a misspelled option often is the required one that is missing.
/// @param words  the command line, without the name of the program.
std::string describe_parse_error(const CLI::App& app, const CLI::Error& error, const std::vector<std::string>& words);

}  // namespace athanor::inline cli
