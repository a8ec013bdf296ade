#include "launch/attempt_run.h"

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/launcher_hold.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/wall_clock.h"
#include "launch/attempt_judge.h"
#include "launch/programs.h"
#include "launch/progress_watch.h"

namespace athanor::launch {
namespace fs = std::filesystem;
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
