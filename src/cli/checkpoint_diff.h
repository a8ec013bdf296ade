#pragma once
// The command `athanor checkpoint diff`.

namespace CLI {
class App;
}

namespace athanor::inline cli {

/// Adds the command to `athanor checkpoint`.
void add_checkpoint_diff_command(CLI::App& parent);

}  // namespace athanor::inline cli
