#pragma once
// The exit codes of a process, for launchers, schedulers and scripts. docs/exit-codes.md describes how they should
// react to each.

namespace athanor::exit_code {

inline constexpr int kComplete = 0;
inline constexpr int kUnforeseen = 1;  ///< an unforeseen failure
inline constexpr int kInput = 2;       ///< configuration, data, checkpoint or command line refused, nothing changed
inline constexpr int kStoppedAndSaved = 10;    ///< stopped on request: run again to continue
inline constexpr int kNotSaved = 11;           ///< stopped or complete, but the last save failed
inline constexpr int kIo = 74;                 ///< data or checkpoint could not be read or written during a run
inline constexpr int kNumbersOfANode = 75;     ///< wrong numbers on one node only: replace it
inline constexpr int kNumbersEverywhere = 76;  ///< wrong numbers on every node: model or data
inline constexpr int kRule = 77;               ///< stopped by a rule of eval.stop_if, and saved
inline constexpr int kCollective = 78;         ///< a collective timed out or a peer was lost
inline constexpr int kMemory = 79;             ///< out of memory, of host or device
inline constexpr int kEvaluation = 80;         ///< an evaluation of a run failed; the run is saved
inline constexpr int kNoProgress = 124;        ///< ended by the watchdog
/// Returns the code of a process that a signal ended: the first signal after it saved, a second one at once.
constexpr int of_signal(int number) { return 128 + number; }

/// Returns the meaning of a code in a word or two, for log/last-words.json and events.jsonl.
constexpr const char* cause_of(int code) {
  switch (code) {
    case kComplete: return "complete";
    case kInput: return "input";
    case kStoppedAndSaved: return "stopped";
    case kNotSaved: return "not saved";
    case kIo: return "io";
    case kNumbersOfANode: return "numbers of a node";
    case kNumbersEverywhere: return "numbers";
    case kRule: return "rule";
    case kCollective: return "collective";
    case kMemory: return "memory";
    case kEvaluation: return "evaluation";
    case kNoProgress: return "no progress";
    default: return code > 128 ? "signal" : "unforeseen";
  }
}

}  // namespace athanor::exit_code
