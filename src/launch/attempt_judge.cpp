#include "launch/attempt_judge.h"

#include <fmt/core.h>

#include <csignal>

#include "base/exit_codes.h"

namespace athanor::launch {
namespace {

bool is_code_of_athanor(int code) {
  namespace codes = exit_code;
  return code == codes::kInput || code == codes::kStoppedAndSaved || code == codes::kNotSaved ||
         code == codes::kNoProgress || (code >= codes::kIo && code <= codes::kEvaluation);
}

// Whether the run has told the cause: what a log shows is not asked then.
bool tells_itself(const AttemptEnding& ending) {
  if (ending.exit_code == exit_code::kComplete || ending.was_told_to_stop || ending.was_overdue) return true;
  return ending.is_training && (ending.words || is_code_of_athanor(ending.exit_code));
}

// "rank 17 (n7): step 9: …", as the terminal has it.
std::string text_of(const LastWords& words) {
  if (!words.rank || words.host.empty()) return words.text;
  return fmt::format("rank {} ({}): {}", *words.rank, words.host, words.text);
}

void take_report(Attempt& attempt, const AttemptEnding& ending) {
  Judgement judged = judge_ending({ending.exit_code, attempt.made_progress(), ending.was_told_to_stop, ending.words});
  attempt.cause = judged.cause;
  attempt.at_fault = ending.was_overdue ? ending.at_fault : std::move(judged.hosts);
  attempt.evidence.push_back({0, fmt::format("exit code {}", ending.exit_code), "exit_code"});
  if (ending.words && !ending.words->text.empty())
    attempt.evidence.push_back({0, text_of(*ending.words), "last_words"});
}

// A log that shows no more than that the run was ended.
bool tells_nothing(Cause cause) {
  return cause == Cause::kSuccessMarker || cause == Cause::kCascade || cause == Cause::kUnknown;
}

// A rank was asked to stop, and `athanor launch` was not. What launchers make of the code of such a rank tells less.
void take_stop(Attempt& attempt, const AttemptEnding& ending) {
  const bool is_known = !tells_nothing(attempt.cause) && attempt.cause != Cause::kCrashUnknown;
  if (ending.stop_signal.empty() || is_known) return;
  attempt.cause = Cause::kExternalKill;
  attempt.evidence.insert(attempt.evidence.begin(),
                          {0, fmt::format("a rank got {}: the run saved and stopped", ending.stop_signal), "events"});
}

}  // namespace

int code_of_run(int launchers_code, Flavour launcher, const std::filesystem::path& run_dir, const RunRecords& before) {
  const std::optional<int> own = end_code_since(run_dir, before);
  switch (launchers_code) {
    case exit_code::kComplete:
      // A run that has nothing to do writes nothing.
      return has_begun(run_dir, before) ? own.value_or(exit_code::kUnforeseen) : launchers_code;
    case exit_code::kUnforeseen: {
      const bool is_open_mpi = launcher == Flavour::kOpenMpi || launcher == Flavour::kPrrte;
      return is_open_mpi && own && *own != exit_code::kComplete ? *own : launchers_code;
    }
    case exit_code::of_signal(SIGTERM):
    case exit_code::of_signal(SIGKILL):
      return launcher == Flavour::kSrun ? own.value_or(launchers_code) : launchers_code;
    default: return launchers_code;
  }
}

void judge_attempt(Attempt& attempt, const AttemptEnding& ending, const JobHosts& hosts) {
  attempt.exit_code = ending.exit_code;
  attempt.first_step = ending.steps.first;
  attempt.last_step = ending.steps.last;
  const bool asks_log = !ending.log.empty() && std::filesystem::exists(ending.log);
  if (tells_itself(ending)) take_report(attempt, ending);
  const bool is_known = tells_itself(ending) && attempt.cause != Cause::kCrashUnknown;
  if (asks_log && (!is_known || !ending.is_training)) {
    Classification found = classify_log(ending.log, ending.exit_code, hosts, SignatureSet::load({}));
    if (!ending.is_training) attempt.last_step = found.last_step;
    if (!is_known && found.num_bytes > 0 && !(ending.words && tells_nothing(found.cause))) {
      attempt.cause = found.cause;
      attempt.at_fault = std::move(found.hosts);
      attempt.suspects = std::move(found.suspects);
      attempt.evidence = std::move(found.evidence);
      take_stop(attempt, ending);
      return;
    }
  }
  if (!is_known || !ending.is_training) {  // the same with what the log has told of steps
    attempt.evidence.clear();
    take_report(attempt, ending);
    take_stop(attempt, ending);
  }
  for (std::string& host : attempt.at_fault) host = hosts.find(host).value_or(host);
}

}  // namespace athanor::launch
