#pragma once
// What a rank is doing, as the board shows it.

#include <array>
#include <cstdint>

namespace athanor::board {

/// The values stand in shared memory: new ones are added at the end.
enum class Phase : uint32_t {
  kStart,     ///< from the start of the process to its first step: loading, checks, measurements
  kData,      ///< waiting for the next batch
  kForward,   ///< one microbatch, with the messages that bring its input
  kBackward,  ///< the same
  kReduce,    ///< what is left of the sums of gradients and losses after backward, and the norm of the gradient
  kUpdate,    ///< the weights that this rank owns
  kGather,    ///< what follows the update of its last bucket
  kSave,      ///< the part of a save during which the training stops
  kValidate,
  kEvaluate,
  kIdle,  ///< what follows a step: its metrics, and the end of the process
};

inline constexpr std::array<const char*, 11> kPhaseNames = {
    "start", "data", "forward", "backward", "reduce", "update", "gather", "save", "validate", "evaluate", "idle"};

/// Returns the name of a phase; "unknown" for a number of a newer version.
constexpr const char* phase_name(uint32_t phase) { return phase < kPhaseNames.size() ? kPhaseNames[phase] : "unknown"; }

}  // namespace athanor::board
