#pragma once
// The option --format of commands that read documents.

#include <CLI/CLI.hpp>
#include <string>

#include "documents/standard_input.h"

namespace athanor::inline cli {

/// Adds --format, which names what standard input holds.
inline CLI::Option* add_format_option(CLI::App& command, DocumentOptions& options) {
  return command
      .add_option_function<std::string>(
          "--format", [&options](const std::string& ending) { options.standard_input = standard_input_format(ending); },
          "What standard input (-) holds: jsonl, json or txt, or compressed: jsonl.gz, jsonl.zst")
      ->type_name("jsonl|json|txt");
}

}  // namespace athanor::inline cli
