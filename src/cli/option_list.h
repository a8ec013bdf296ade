#pragma once
// Lists the options of all commands for the test of the answers to wrong ones (tests/interop/test_answers.py).

namespace CLI {
class App;
}

namespace athanor::inline cli {

/// Prints a JSON object for each option and argument of each command: its command, its name, whether it takes a value,
/// and the type that --help names.
void print_option_list(const CLI::App& app);

}  // namespace athanor::inline cli
