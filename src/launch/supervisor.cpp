#include "launch/supervisor.h"

#include <optional>

#include "base/exit_codes.h"
#include "base/log.h"
#include "base/wall_clock.h"
#include "launch/attempt_judge.h"
#include "launch/process.h"
#include "launch/programs.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

JobHosts job_hosts(const LaunchPlan& plan) {
  std::vector<Host> hosts = plan.allocation.hosts;
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = plan.ranks.of_host[i];
  return JobHosts(hosts);
}

class Supervisor {
 public:
  Supervisor(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision)
      : plan_(plan), here_(here), run_dir_(run_folder_of(plan.command, supervision.own_program)) {
    attempts_ = supervision.attempts;
    if (attempts_.empty() && run_dir_) attempts_ = *run_dir_ / "attempts";
  }

  int run() {
    const Attempt attempt = run_attempt();
    const bool tells = has_folder_ && attempt.cause != Cause::kSuccess;
    if (tells) log::warn("{} ({})", attempt_text(attempt), folder_of_attempt(attempts_, attempt.number).string());
    return attempt.exit_code;
  }

 private:
  Attempt run_attempt() {
    has_folder_ = false;
    Attempt attempt;
    attempt.number = attempts_.empty() ? 1 : next_attempt(attempts_);
    attempt.started = unix_time_s();
    const RunRecords before = run_dir_ ? read_records(*run_dir_) : RunRecords();
    std::optional<OutputTee> tee;
    if (!attempts_.empty()) tee.emplace(OutputTee::Log::kLater);
    const auto look = [&] {  // what the board and the history of a training show is looked at in between
      if (tee && !has_folder_ && (!run_dir_ || has_begun(*run_dir_, before))) make_folder(attempt.number, *tee);
      return false;
    };
    look();
    const ProgramsEnd end = start_and_wait(tee ? &*tee : nullptr, look);
    attempt.ended = unix_time_s();
    look();
    const bool is_refused = end.exit_code == exit_code::kComplete || end.exit_code == exit_code::kInput;
    if (tee && !has_folder_ && !is_refused && !end.was_told_to_stop) make_folder(attempt.number, *tee);
    judge(attempt, end, before);
    if (has_folder_) write_verdict(attempts_, attempt);
    return attempt;
  }

  ProgramsEnd start_and_wait(OutputTee* tee, const std::function<bool()>& look) const {
    const Programs programs(plan_, build_command(plan_, here_));
    RunOptions options;
    options.passed = [this](int number) { return passed_signal(plan_.launcher.flavour, number); };
    options.tee = tee;
    options.is_overdue = look;
    return run_programs(programs.all(), signals_, options);
  }

  void make_folder(int number, OutputTee& tee) {
    make_attempt(attempts_, number, plan_.allocation.hosts);
    tee.log_to(folder_of_attempt(attempts_, number) / "log");
    has_folder_ = true;
  }

  void judge(Attempt& attempt, const ProgramsEnd& end, const RunRecords& before) const {
    AttemptEnding ending;
    ending.exit_code = end.exit_code;
    ending.is_training = run_dir_.has_value();
    ending.was_told_to_stop = end.was_told_to_stop;
    if (run_dir_) ending.words = fresh_last_words(*run_dir_, before);
    if (run_dir_) ending.steps = steps_since(*run_dir_, before);
    if (has_folder_) ending.log = folder_of_attempt(attempts_, attempt.number) / "log";
    judge_attempt(attempt, ending, job_hosts(plan_));
  }

  const LaunchPlan& plan_;
  const Surroundings& here_;
  const std::optional<fs::path> run_dir_;  // of a training
  const WaitedSignals signals_;
  fs::path attempts_;        // empty: none
  bool has_folder_ = false;  // of the present attempt
};

}  // namespace

int supervise(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision) {
  return Supervisor(plan, here, supervision).run();
}

}  // namespace athanor::launch
