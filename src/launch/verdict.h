#pragma once
// Why an attempt of a job ended, and what follows from it: one table from causes to verdicts and actions.
//
// Two sources name a cause: what a program reports itself (its exit code and last words, below), and what its log shows
// (launch/classify.h). The names of causes are those that sets of labelled logs use; `code_bug` has three kinds, which
// signatures distinguish.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::launch {

/// What to do is decided by the verdict.
enum class Verdict {
  kSuccess,
  kWalltime,             ///< the time of the job was up
  kBadNode,              ///< a node failed
  kSoftFailure,          ///< a node computes wrong numbers
  kSystemic,             ///< no node is at fault: file system, network, licence, code, configuration, data
  kOutOfMemory,          ///< the model, its layout or its data take too much
  kSilentHang,           ///< it trained, and stopped without a message
  kStuckBeforeTraining,  ///< it never trained
  kStopped,              ///< by its user or by a rule: never retried
  kUnknown,              ///< it failed, and nothing shows why
};

enum class Cause {
  kSuccess,
  kSuccessMarker,
  kWalltime,
  kBadNode,
  kSoftFailure,
  kNetwork,
  kFileSystem,
  kLicence,
  kLauncher,
  kExternalKill,
  kCode,
  kConfiguration,
  kData,
  kNumbers,
  kOutOfMemory,
  kSilentHang,
  kStuckPreTraining,
  kUserCancel,
  kStopped,
  kCascade,
  kCrashUnknown,
  kUnknown,
};

/// Whether something cures a cause.
enum class Cure { kNo, kPerhaps, kYes };

struct CauseRow {
  Cause cause;
  const char* kind;  ///< the name that a signature uses
  const char* name;  ///< what is printed as cause; several kinds may share it
  Verdict verdict;
  Cure time;  ///< does the same command on the same nodes succeed later?
  Cure swap;  ///< does it succeed with other nodes?
  const char* action;
};

/// All rows, in the order of the documentation.
std::span<const CauseRow> cause_table();
const CauseRow& row_of(Cause cause);
std::optional<Cause> cause_of_kind(std::string_view kind);
std::vector<std::string> all_kinds();

const char* name_of(Verdict verdict);
const char* name_of(Cure cure);

/// The end of a run in its own words: the fields of log/last-words.json that decide (docs/exit-codes.md).
struct LastWords {
  int exit_code = 0;
  std::optional<int> rank;  ///< nothing: not known
  std::string host;         ///< ""; not known
  std::string text;
  std::vector<std::string> missing = {};  ///< hosts of the ranks that the others waited for
};

/// What is known of an attempt without its log.
struct Ending {
  int exit_code = 0;
  bool made_progress = false;  ///< it has taken a step
  bool launcher_was_told_to_stop = false;
  std::optional<LastWords> words;
};

/// The cause, with the hosts that are at fault.
struct Judgement {
  Cause cause = Cause::kUnknown;
  std::vector<std::string> hosts;
};

/// Returns what an exit code of Athanor means (docs/exit-codes.md), or of a program that knows only 0, 1 and signals.
/// If the code was lost on its way through a launcher (1, or 128 + a signal) the last words' code counts. Codes below 0
/// and above 255 are those of PBS.
Judgement judge_ending(const Ending& ending);

}  // namespace athanor::launch
