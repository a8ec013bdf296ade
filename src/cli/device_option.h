#pragma once
// The --device option of every command that can compute on an accelerator.

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace athanor::inline cli {

/// Adds the option. It takes the values of train.device, which are appended to `help`; `into`, which must outlive
/// `command`, gets the value.
CLI::Option* add_device_option(CLI::App& command, std::string& into, const std::string& help);

}  // namespace athanor::inline cli
