#pragma once
// --dtype of every command that asks for a type of numbers.

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace athanor {

/// Takes bfloat16 or bf16, float32 or fp32; `into` gets the long name. The names are put behind `help`.
CLI::Option* add_type_option(CLI::App& command, std::string& into, const std::string& help);

}  // namespace athanor
