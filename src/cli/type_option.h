#pragma once
// The --dtype option of every command that asks for a number type.

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace athanor::inline cli {

/// Adds the option. It accepts bfloat16 or bf16, float32 or fp32; `into`, which must outlive `command`, gets the long
/// name. The names are appended to `help`.
CLI::Option* add_type_option(CLI::App& command, std::string& into, const std::string& help);

}  // namespace athanor::inline cli
