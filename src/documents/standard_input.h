#pragma once
// Standard input in the place of a file: a command line names it `-`, as that of other tools.
//
// It has no name that tells what it holds, so that the user names it (DocumentOptions::standard_input), and it can be
// read only once.

#include <filesystem>
#include <string>
#include <vector>

#include "documents/document_options.h"
#include "documents/inputs.h"

namespace athanor::inline documents {

inline constexpr const char* kStandardInput = "-";

/// Returns true for `-`. A file of this name has no ending that input_format() knows.
bool is_standard_input(const std::filesystem::path& file);

/// Returns the name of a file for messages: "standard input" for `-`.
std::string shown_name(const std::filesystem::path& file);

/// Returns what standard input holds by the ending that a file of it would have: "jsonl", "txt", "json.zst".
/// @throws ConfigError for any other ending, and for Parquet, which is read from its end.
InputFormat standard_input_format(const std::string& ending);

/// Checks how `inputs`, as the user named them, use standard input.
/// @throws ConfigError if it is named twice, or with attributes, or without its format; or if the format is given and
///         it is not named.
void check_standard_input(const std::vector<std::string>& inputs, const DocumentOptions& options);

/// Prints that `what` is awaited, if standard input is a terminal: the program would seem to hang.
void announce_terminal(const std::string& what);

}  // namespace athanor::inline documents
