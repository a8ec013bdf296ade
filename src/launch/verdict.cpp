#include "launch/verdict.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/exit_codes.h"

namespace athanor::launch {
namespace {

constexpr Cure kNo = Cure::kNo, kPerhaps = Cure::kPerhaps, kYes = Cure::kYes;

constexpr CauseRow kTable[] = {
    {Cause::kSuccess, "success", "success", Verdict::kSuccess, kNo, kNo, "nothing: it is complete"},
    {Cause::kWalltime, "walltime", "walltime", Verdict::kWalltime, kNo, kNo,
     "run the same command in a new job; it continues from its newest checkpoint"},
    {Cause::kBadNode, "bad_node", "bad_node", Verdict::kBadNode, kPerhaps, kYes,
     "run again without the hosts that are named"},
    {Cause::kSoftFailure, "soft_failure", "soft_failure", Verdict::kSoftFailure, kNo, kYes,
     "run again without the host that is named: it computes wrong numbers"},
    {Cause::kNetwork, "network", "network", Verdict::kSystemic, kYes, kPerhaps,
     "wait, then run again on the same nodes; swap nodes only if it fails again"},
    {Cause::kFileSystem, "file_system", "file_system", Verdict::kSystemic, kYes, kNo,
     "check that file system (space, quota, servers), then run again on the same nodes"},
    {Cause::kLicence, "licence", "licence", Verdict::kSystemic, kYes, kNo,
     "wait until the licence server answers and has a free licence, then run again"},
    {Cause::kLauncher, "launcher", "stuck_pre_training", Verdict::kStuckBeforeTraining, kYes, kPerhaps,
     "wait, then start it again: its processes were not started, or did not find one another"},
    {Cause::kExternalKill, "external_kill", "external_kill", Verdict::kSystemic, kYes, kPerhaps,
     "run again: the scheduler or its administrators ended the job"},
    {Cause::kCode, "code_bug", "code_bug", Verdict::kSystemic, kNo, kNo,
     "correct the program or its installation; no node is at fault"},
    {Cause::kConfiguration, "configuration", "code_bug", Verdict::kSystemic, kNo, kNo,
     "correct the configuration or the command line; no node is at fault"},
    {Cause::kData, "data", "code_bug", Verdict::kSystemic, kNo, kNo,
     "correct or restore the data that the message names; no node is at fault"},
    {Cause::kNumbers, "numbers", "numbers", Verdict::kSystemic, kNo, kNo,
     "lower the learning rate, or look at the data of the step; no node is known to be at fault"},
    {Cause::kOutOfMemory, "out_of_memory", "out_of_memory", Verdict::kOutOfMemory, kNo, kNo,
     "use a smaller microbatch, recomputation or more ranks"},
    {Cause::kSilentHang, "silent_hang", "silent_hang", Verdict::kSilentHang, kPerhaps, kPerhaps,
     "run again, without the node of the rank that the others waited for if the board or the stacks name one"},
    {Cause::kStuckPreTraining, "stuck_pre_training", "stuck_pre_training", Verdict::kStuckBeforeTraining, kPerhaps,
     kPerhaps, "run again once; if it does not reach its first step again, stop and look at its start"},
    {Cause::kUserCancel, "user_cancel", "user_cancel", Verdict::kStopped, kNo, kNo,
     "nothing: it was cancelled; run the same command to continue"},
    {Cause::kStopped, "stopped", "stopped", Verdict::kStopped, kNo, kNo,
     "nothing: it stopped as it was asked to, or by a rule of its configuration"},
    {Cause::kSuccessMarker, "success_marker", "success_marker", Verdict::kUnknown, kPerhaps, kPerhaps,
     "run again: it had trained, and its log does not show why it ended"},
    {Cause::kCascade, "cascade", "cascade", Verdict::kUnknown, kPerhaps, kPerhaps,
     "run again on the same nodes: the log shows only what followed from a failure"},
    {Cause::kCrashUnknown, "crash_unknown", "crash_unknown", Verdict::kUnknown, kPerhaps, kPerhaps,
     "look at the evidence; run again once on the same nodes"},
    {Cause::kUnknown, "unknown", "unknown", Verdict::kUnknown, kPerhaps, kPerhaps,
     "look at the log; run again once on the same nodes"},
};

constexpr int kPbsSignalBase = 256;

// Who waited for others reports it, and is not at fault.
std::vector<std::string> hosts_of(const LastWords& words) {
  if (!words.missing.empty()) return words.missing;
  return words.host.empty() ? std::vector<std::string>() : std::vector{words.host};
}

// A job that was ended from outside, and reported nothing: a scheduler sends SIGTERM when the time is up. Who never
// trained in all that time is stuck.
Cause cause_of_term(bool made_progress) { return made_progress ? Cause::kWalltime : Cause::kStuckPreTraining; }

Cause cause_of_signal(int signal, bool made_progress) {
  switch (signal) {
    case SIGINT: return Cause::kUserCancel;
    case SIGTERM: return cause_of_term(made_progress);
    case SIGHUP: return Cause::kExternalKill;
    default: return Cause::kCrashUnknown;
  }
}

// JOB_EXEC_... of PBS: what the server records if the job's script did not end by itself.
Cause cause_of_pbs(int code) {
  switch (code) {
    case -29: return Cause::kWalltime;
    case -26:
    case -27: return Cause::kOutOfMemory;
    case -24:
    case -25:
    case -28: return Cause::kConfiguration;  // more processors or processor time than were asked for
    case -1:
    case -2:
    case -3:
    case -30: return Cause::kLauncher;
    default: return Cause::kExternalKill;
  }
}

Cause cause_of_code(int code, const Ending& ending) {
  namespace codes = exit_code;
  switch (code) {
    case codes::kComplete: return Cause::kSuccess;
    case codes::kInput: return Cause::kConfiguration;
    case codes::kStoppedAndSaved: return Cause::kStopped;
    case codes::kNotSaved: return Cause::kFileSystem;
    case codes::kIo: return Cause::kFileSystem;
    case codes::kNumbersOfANode: return Cause::kSoftFailure;
    case codes::kNumbersEverywhere: return Cause::kNumbers;
    case codes::kRule: return Cause::kStopped;
    case codes::kCollective: return ending.words && hosts_of(*ending.words).empty() ? Cause::kNetwork : Cause::kBadNode;
    case codes::kMemory: return Cause::kOutOfMemory;
    case codes::kEvaluation: return Cause::kData;
    case codes::kNoProgress: return ending.made_progress ? Cause::kSilentHang : Cause::kStuckPreTraining;
    default: break;
  }
  if (code < 0) return cause_of_pbs(code);
  if (code > kPbsSignalBase) return cause_of_signal(code - kPbsSignalBase, ending.made_progress);
  if (code > codes::of_signal(0)) return cause_of_signal(code - codes::of_signal(0), ending.made_progress);
  return Cause::kCrashUnknown;
}

bool is_lost_code(int code) { return code == exit_code::kUnforeseen || code > exit_code::of_signal(0) || code < 0; }

}  // namespace

std::span<const CauseRow> cause_table() { return kTable; }

const CauseRow& row_of(Cause cause) {
  const auto* row = std::ranges::find(kTable, cause, &CauseRow::cause);
  ATHANOR_ASSERT(row != std::end(kTable));
  return *row;
}

std::optional<Cause> cause_of_kind(std::string_view kind) {
  for (const CauseRow& row : kTable)
    if (row.kind == kind) return row.cause;
  return std::nullopt;
}

std::vector<std::string> all_kinds() {
  std::vector<std::string> kinds;
  for (const CauseRow& row : kTable) kinds.emplace_back(row.kind);
  return kinds;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSuccess: return "success";
    case Verdict::kWalltime: return "walltime";
    case Verdict::kBadNode: return "bad_node";
    case Verdict::kSoftFailure: return "soft_failure";
    case Verdict::kSystemic: return "systemic";
    case Verdict::kOutOfMemory: return "out_of_memory";
    case Verdict::kSilentHang: return "silent_hang";
    case Verdict::kStuckBeforeTraining: return "stuck_before_training";
    case Verdict::kStopped: return "stopped";
    case Verdict::kUnknown: return "unknown";
  }
  return "unknown";
}

const char* name_of(Cure cure) {
  switch (cure) {
    case Cure::kNo: return "no";
    case Cure::kPerhaps: return "perhaps";
    case Cure::kYes: return "yes";
  }
  return "perhaps";
}

Judgement judge_ending(const Ending& ending) {
  if (ending.exit_code == exit_code::kComplete) return {Cause::kSuccess, {}};
  if (ending.launcher_was_told_to_stop) return {Cause::kUserCancel, {}};
  const bool words_count = ending.words && ending.words->exit_code != 0 && is_lost_code(ending.exit_code);
  const Cause cause = cause_of_code(words_count ? ending.words->exit_code : ending.exit_code, ending);
  Judgement judgement{cause, {}};
  const bool blames = cause == Cause::kSoftFailure || cause == Cause::kBadNode;
  if (blames && ending.words) judgement.hosts = hosts_of(*ending.words);
  return judgement;
}

}  // namespace athanor::launch
