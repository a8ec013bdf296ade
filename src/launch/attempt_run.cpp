#include "launch/attempt_run.h"

#include <fmt/core.h>

#include <csignal>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/launcher_hold.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/wall_clock.h"
#include "launch/programs.h"
#include "launch/progress_watch.h"

namespace athanor::launch {
namespace fs = std::filesystem;

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
    Classification classification = classify_log(ending.log, ending.exit_code, hosts, SignatureSet::load({}));
    if (!ending.is_training) attempt.last_step = classification.last_step;
    if (!is_known && classification.num_bytes > 0 && !(ending.words && tells_nothing(classification.cause))) {
      attempt.cause = classification.cause;
      attempt.at_fault = std::move(classification.hosts);
      attempt.suspects = std::move(classification.suspects);
      attempt.evidence = std::move(classification.evidence);
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

namespace {

// Stacks of ranks that hang take up to 20 s (docs/board.md).
constexpr std::chrono::seconds kForStacks{40};

JobHosts hosts_of_plan(const LaunchPlan& plan) {
  std::vector<Host> hosts = plan.allocation.hosts;
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = plan.ranks.of_host[i];
  return JobHosts(hosts);
}

}  // namespace

Attempt AttemptRun::run(const WhileItRuns& while_it_runs) {
  const std::optional<fs::path>& run_dir = setting_.run_dir;
  const fs::path& attempts = setting_.attempts;
  attempt_.number = attempts.empty() ? 1 : next_attempt(attempts);
  attempt_.started = unix_time_s();
  if (run_dir) before_ = read_records(*run_dir);
  std::optional<OutputTee> tee;
  if (!attempts.empty() || setting_.timeout_s > 0)
    tee.emplace(attempts.empty() ? OutputTee::Log::kNone : OutputTee::Log::kLater);
  ProgressWatch watch(run_dir, before_.attempt, setting_.timeout_s, hosts_of_plan(plan_), here_.host);
  std::vector<std::string> at_fault, silent;
  const auto look = [&] {
    if (!attempts.empty() && !has_folder_ && (!run_dir || has_begun(*run_dir, before_))) make_folder(*tee);
    if (has_folder_ && while_it_runs) while_it_runs();
    if (!tee || !watch.is_overdue(*tee)) return false;
    at_fault = watch.at_fault(), silent = watch.silent();
    keep_evidence(watch, *tee);
    return true;
  };
  ProgramsEnd end = start_and_wait(tee ? &*tee : nullptr, look);
  if (end.was_overdue)
    end.exit_code = exit_code::kNoProgress;
  else if (run_dir)
    end.exit_code = code_of_run(end.exit_code, plan_.launcher.flavour, *run_dir, before_);
  attempt_.ended = unix_time_s();
  if (!attempts.empty() && !has_folder_ && leaves_record(end)) make_folder(*tee);
  judge(end, std::move(at_fault));
  attempt_.silent = end.was_overdue ? std::move(silent) : watch.silent();
  try {
    if (has_folder_) write_verdict(attempts, attempt_);
  } catch (const IoError& error) {
    warn_of_record(error);
  }
  return attempt_;
}

ProgramsEnd AttemptRun::start_and_wait(OutputTee* tee, const std::function<bool()>& look) {
  const Programs programs(plan_, command());
  RunOptions options;
  options.passed = [this](int number) {
    if (asks_to_stop(number)) note_stop(number);
    return passed_signal(plan_.launcher.flavour, number);
  };
  options.tee = tee;
  options.is_overdue = look;
  options.to_groups = plan_.launcher.flavour == Flavour::kSockets;  // launchers reach what their ranks started
  look();
  is_running_ = true;
  return run_programs(programs.all(), signals_, options);
}

fs::path AttemptRun::stop_file() const {
  return fs::absolute(folder_of_attempt(setting_.attempts, attempt_.number)) / "stop";
}

// The ranks of a training are told where they find whether this process was told to stop (base/launcher_hold.h).
LaunchCommand AttemptRun::command() const {
  Surroundings here = here_;
  Variables variables;
  if (setting_.run_dir && !setting_.attempts.empty()) variables.emplace_back(kStopFileVariable, stop_file().string());
  for (const auto& [name, value] : variables) here.variables[name] = value;  // so that other hosts get them
  // On a node that was lost the step of the attempt before lasts until Slurm gives the node up.
  if (attempts_before_ > 0 && plan_.launcher.flavour == Flavour::kSrun) variables.emplace_back("SLURM_OVERLAP", "1");
  LaunchCommand command = build_command(plan_, here);
  command.variables.insert(command.variables.end(), variables.begin(), variables.end());
  return command;
}

void AttemptRun::note_stop(int signal) {
  if (signal_ == 0) signal_ = signal;
  if (!has_folder_ || !setting_.run_dir) return;
  try {
    write_file_atomically(stop_file(), std::string(signal_name(signal)) + "\n");
  } catch (const IoError& error) {
    log::warn("{}", error.what());  // the ranks may have too little time to save
  }
}

// A start that was refused, was told to stop before it began, or had nothing to do leaves the folder as it was. What
// ends a series of attempts is kept in any case.
bool AttemptRun::leaves_record(const ProgramsEnd& end) const {
  if (attempts_before_ > 0) return true;
  if (setting_.run_dir && has_begun(*setting_.run_dir, before_)) return true;
  return end.exit_code != exit_code::kComplete && end.exit_code != exit_code::kInput && !end.was_told_to_stop;
}

void AttemptRun::make_folder(OutputTee& tee) {
  try {
    make_attempt(setting_.attempts, attempt_.number, plan_.allocation.hosts);
  } catch (const IoError& error) {
    if (!is_running_ && attempts_before_ == 0) throw;
    warn_of_record(error);
  }
  tee.log_to(folder_of_attempt(setting_.attempts, attempt_.number) / "log");
  has_folder_ = true;
}

// Whoever has begun continues without a record: a full disk is no reason to end a run, nor to hide how it ended.
void AttemptRun::warn_of_record(const IoError& error) const {
  log::warn("{}; the record of attempt {} lacks this", error.what(), attempt_.number);
}

// Keeps what shows why a command without progress stands still.
void AttemptRun::keep_evidence(const ProgressWatch& watch, OutputTee& tee) {
  log::warn("no progress for {:.0f} s: the command is ended ({})", watch.waited_s(), watch.allowed());
  if (setting_.attempts.empty()) return;
  if (!has_folder_) make_folder(tee);
  if (!setting_.run_dir) return;
  const fs::path file = folder_of_attempt(setting_.attempts, attempt_.number) / "board.txt";
  try {
    write_board_and_stacks(setting_.own_program, *setting_.run_dir, file, kForStacks);
  } catch (const IoError& error) {
    warn_of_record(error);
  }
}

void AttemptRun::judge(const ProgramsEnd& end, std::vector<std::string> at_fault) {
  AttemptEnding ending;
  ending.exit_code = end.exit_code;
  ending.is_training = setting_.run_dir.has_value();
  ending.was_told_to_stop = end.was_told_to_stop;
  ending.was_overdue = end.was_overdue;
  ending.at_fault = std::move(at_fault);
  if (setting_.run_dir) ending.words = fresh_last_words(*setting_.run_dir, before_);
  if (setting_.run_dir) ending.steps = steps_since(*setting_.run_dir, before_);
  if (const StopRecord stop = this->stop(); stop.signal > 0) ending.stop_signal = signal_name(stop.signal);
  if (has_folder_) ending.log = folder_of_attempt(setting_.attempts, attempt_.number) / "log";
  judge_attempt(attempt_, ending, hosts_of_plan(plan_));
}

StopRecord AttemptRun::stop() const { return setting_.run_dir ? stop_since(*setting_.run_dir, before_) : StopRecord(); }

bool AttemptRun::has_stepped() const {
  return setting_.run_dir && steps_since(*setting_.run_dir, before_).last.has_value();
}

}  // namespace athanor::launch
