#include "launch/supervisor.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/launcher_hold.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/wall_clock.h"
#include "launch/attempt_judge.h"
#include "launch/process.h"
#include "launch/programs.h"
#include "launch/progress_watch.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

// Stacks of ranks that hang take up to 20 s (docs/board.md).
constexpr std::chrono::seconds kForStacks{40};

JobHosts job_hosts(const LaunchPlan& plan) {
  std::vector<Host> hosts = plan.allocation.hosts;
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = plan.ranks.of_host[i];
  return JobHosts(hosts);
}

std::vector<std::string> names_of_hosts(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

// The hosts of the job beyond those in use that have room for the ranks of any place.
std::vector<Host> usable_spares(const LaunchPlan& plan, std::optional<int> wanted) {
  if (plan.launcher.flavour == Flavour::kSockets) return {};
  std::vector<Host> spares = plan.allocation.others;
  std::erase_if(spares, [&](const Host& host) { return host.slots > 0 && host.slots < plan.ranks.most(); });
  const auto most =
      static_cast<size_t>(wanted.value_or(automatic_spares(static_cast<int>(plan.allocation.hosts.size()))));
  if (spares.size() > most) spares.resize(most);
  return spares;
}

bool asks_to_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

class Supervisor {
 public:
  Supervisor(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision)
      : plan_(plan), here_(here), supervision_(supervision),
        run_dir_(run_folder_of(plan.command, supervision.own_program)), attempts_(supervision.attempts) {
    if (attempts_.empty() && run_dir_) attempts_ = *run_dir_ / "attempts";
    if (attempts_.empty() && supervision.may_retry()) attempts_ = "attempts";
    state_.hosts = names_of_hosts(plan.allocation.hosts);
    state_.spares = names_of_hosts(usable_spares(plan, supervision.spares));
  }

  int run() {
    while (true) {
      const Attempt attempt = run_attempt();
      ++num_attempts_;
      if (has_folder_ && attempt.cause != Cause::kSuccess)
        log::warn("{} ({})", attempt_text(attempt), folder_of_attempt(attempts_, attempt.number).string());
      if (!goes_on(attempt)) return attempt.exit_code;
    }
  }

 private:
  Attempt run_attempt() {
    has_folder_ = false;
    Attempt attempt;
    attempt.number = attempts_.empty() ? 1 : next_attempt(attempts_);
    attempt.started = unix_time_s();
    const RunRecords before = run_dir_ ? read_records(*run_dir_) : RunRecords();
    std::optional<OutputTee> tee;
    if (!attempts_.empty() || supervision_.timeout_s > 0)
      tee.emplace(attempts_.empty() ? OutputTee::Log::kNone : OutputTee::Log::kLater);
    ProgressWatch watch(run_dir_, before.attempt, supervision_.timeout_s);
    std::vector<std::string> late;
    const auto look = [&] {
      if (!attempts_.empty() && !has_folder_ && (!run_dir_ || has_begun(*run_dir_, before)))
        make_folder(attempt.number, *tee);
      if (!tee || !watch.is_overdue(*tee)) return false;
      late = watch.late();
      keep_evidence(attempt.number, watch.waited_s(), *tee);
      return true;
    };
    ProgramsEnd end = start_and_wait(attempt.number, tee ? &*tee : nullptr, look);
    if (end.was_overdue) end.exit_code = exit_code::kNoProgress;
    if (!end.was_overdue && run_dir_) end.exit_code = code_of_run(end.exit_code, before);
    attempt.ended = unix_time_s();
    if (!attempts_.empty() && !has_folder_ && leaves_record(end, before)) make_folder(attempt.number, *tee);
    judge(attempt, end, before, std::move(late));
    if (has_folder_) write_verdict(attempts_, attempt);
    return attempt;
  }

  ProgramsEnd start_and_wait(int number, OutputTee* tee, const std::function<bool()>& look) const {
    const Programs programs(plan_, command_of(number));
    RunOptions options;
    options.passed = [this, number](int signal) {
      note_stop(number, signal);
      return passed_signal(plan_.launcher.flavour, signal);
    };
    options.tee = tee;
    options.is_overdue = look;
    look();
    return run_programs(programs.all(), signals_, options);
  }

  fs::path stop_file(int number) const {
    return attempts_.empty() ? fs::path() : fs::absolute(folder_of_attempt(attempts_, number)) / "stop";
  }

  // The ranks of a training are told where they find whether this process was told to stop (base/launcher_hold.h).
  LaunchCommand command_of(int number) const {
    Surroundings here = here_;
    Variables variables;
    if (run_dir_ && !attempts_.empty()) variables.emplace_back(kStopFileVariable, stop_file(number).string());
    for (const auto& [name, value] : variables) here.variables[name] = value;  // so that other hosts get them
    // On a node that was lost the step of the attempt before lasts until Slurm gives the node up.
    if (num_attempts_ > 0 && plan_.launcher.flavour == Flavour::kSrun) variables.emplace_back("SLURM_OVERLAP", "1");
    LaunchCommand command = build_command(plan_, here);
    command.variables.insert(command.variables.end(), variables.begin(), variables.end());
    return command;
  }

  void note_stop(int number, int signal) const {
    if (!has_folder_ || !run_dir_ || !asks_to_stop(signal)) return;
    try {
      write_file_atomically(stop_file(number), std::string(signal_name(signal)) + "\n");
    } catch (const IoError& error) {
      log::warn("{}", error.what());  // the ranks may have too little time to save
    }
  }

  // Some time after the first rank has ended, srun ends those that are left by a signal, and returns that.
  int code_of_run(int code, const RunRecords& before) const {
    const bool is_of_signal = code == exit_code::of_signal(SIGTERM) || code == exit_code::of_signal(SIGKILL);
    if (plan_.launcher.flavour != Flavour::kSrun || !is_of_signal) return code;
    return end_code_since(*run_dir_, before).value_or(code);
  }

  // A start that was refused, was told to stop before it began, or had nothing to do leaves the folder as it was. What
  // ends a series of attempts is kept in any case.
  bool leaves_record(const ProgramsEnd& end, const RunRecords& before) const {
    if (num_attempts_ > 0 || (run_dir_ && has_begun(*run_dir_, before))) return true;
    return end.exit_code != exit_code::kComplete && end.exit_code != exit_code::kInput && !end.was_told_to_stop;
  }

  void make_folder(int number, OutputTee& tee) {
    make_attempt(attempts_, number, plan_.allocation.hosts);
    tee.log_to(folder_of_attempt(attempts_, number) / "log");
    has_folder_ = true;
  }

  // Keeps what shows why a command without progress stands still.
  void keep_evidence(int number, double waited_s, OutputTee& tee) {
    log::warn("no progress for {:.0f} s: the command is ended (--timeout)", waited_s);
    if (attempts_.empty()) return;
    if (!has_folder_) make_folder(number, tee);
    if (!run_dir_) return;
    const fs::path file = folder_of_attempt(attempts_, number) / "board.txt";
    write_board_and_stacks(supervision_.own_program, *run_dir_, file, kForStacks);
  }

  void judge(Attempt& attempt, const ProgramsEnd& end, const RunRecords& before, std::vector<std::string> late) const {
    AttemptEnding ending;
    ending.exit_code = end.exit_code;
    ending.is_training = run_dir_.has_value();
    ending.was_told_to_stop = end.was_told_to_stop;
    ending.was_overdue = end.was_overdue;
    ending.late = std::move(late);
    if (run_dir_) ending.words = fresh_last_words(*run_dir_, before);
    if (run_dir_) ending.steps = steps_since(*run_dir_, before);
    if (run_dir_) ending.stop_signal = stop_signal_since(*run_dir_, before);
    if (has_folder_) ending.log = folder_of_attempt(attempts_, attempt.number) / "log";
    judge_attempt(attempt, ending, job_hosts(plan_));
  }

  // Returns whether another attempt follows, when its time has come.
  bool goes_on(const Attempt& attempt) {
    if (!supervision_.may_retry()) return false;
    const AttemptOutcome outcome{attempt.cause, attempt.at_fault, attempt.made_progress()};
    FailoverDecision decision = decide_failover(state_, outcome, supervision_.limits);
    if (!decision.retries) return stop(attempt, decision.reason);
    log::info("runs it again{}: {}", decision.wait_s > 0 ? fmt::format(" in {:.0f} s", decision.wait_s) : std::string(),
              decision.reason);
    if (const int number = wait(decision.wait_s))
      return stop(attempt, fmt::format("{} came before the next attempt", signal_name(number)));
    state_ = std::move(decision.next);
    take_hosts(state_.hosts);
    return true;
  }

  void take_hosts(const std::vector<std::string>& hosts) {
    for (size_t i = 0; i < hosts.size(); ++i) plan_.allocation.hosts[i].name = hosts[i];
    plan_.is_one_machine = plan_.allocation.is_this_machine(here_);
  }

  bool stop(const Attempt& attempt, const std::string& reason) const {
    if (attempt.cause != Cause::kSuccess)
      log::warn("FAILOVER STOP: {}", reason);
    else if (num_attempts_ > 1)
      log::info("complete after {} attempts", num_attempts_);
    return false;
  }

  // Returns the number of a signal that came, or 0.
  int wait(double seconds) const { return signals_.wait(std::chrono::milliseconds(std::llround(seconds * 1000))); }

  LaunchPlan plan_;
  const Surroundings& here_;
  const Supervision& supervision_;
  const std::optional<fs::path> run_dir_;  // nothing for a command that is no training
  const WaitedSignals signals_;
  fs::path attempts_;  // empty: none
  FailoverState state_;
  int num_attempts_ = 0;
  bool has_folder_ = false;  // the present attempt has one
};

}  // namespace

int supervise(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision) {
  return Supervisor(plan, here, supervision).run();
}

}  // namespace athanor::launch
