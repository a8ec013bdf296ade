#pragma once
// Which commands several processes may run together, and which of them are one process.

namespace CLI {
class App;
}

namespace athanor {

/// @throws ConfigError, before anything is written, if the command that was chosen does not go with what started us
///         (base/launched.h).
void refuse_what_started_us(const CLI::App& app);

}  // namespace athanor
