#include "launch/supervisor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "launch/attempt_run.h"
#include "launch/launcher_command.h"
#include "launch/process.h"
#include "launch/programs.h"
#include "launch/training_command.h"

namespace athanor::launch {
namespace fs = std::filesystem;

namespace {

// What a probe is given. A launcher, libtorch and the devices of a node may need a minute to start.
constexpr std::chrono::seconds kProbeLimit{120};

// The plan of that start.
LaunchPlan probe_plan(const LaunchPlan& plan, const std::string& own_program, const std::string& host,
                      const fs::path& folder) {
  LaunchPlan probe = plan;
  probe.allocation.hosts = {{host, plan.allocation.has_slots() ? plan.ranks.most() : 0}};
  probe.ranks.of_host = {plan.ranks.most()};
  probe.is_one_machine = probe.has_spares_in_use = probe.is_training = false;
  probe.command = {own_program, "probe", "--folder", fs::absolute(folder).string()};
  return probe;
}

// Finds out whether a spare host works, before a run relies on it. Starts `athanor probe` on the host alone, by the
// launcher of the plan and with as many ranks as a node has. It uses what a training uses: the launcher's way to the
// host, the program and its libraries there, every device, memory, messages between the ranks, and the file system of
// `folder`. Its output is in probe-HOST.txt there.
// @param gives_up  asked now and then; true: the probe is ended, and the host did not pass it.
bool passes_probe(const LaunchPlan& plan, const Surroundings& here, const std::string& own_program,
                  const std::string& host, const fs::path& folder, const std::function<bool()>& gives_up) {
  const LaunchPlan probe = probe_plan(plan, own_program, host, folder);
  const fs::path file = folder / fmt::format("probe-{}.txt", host);
  const Programs programs(probe, build_command(probe, here));
  std::optional<int> code;
  try {
    code = run_into_file(programs.all().front(), file, kProbeLimit, gives_up);
  } catch (const Error& error) {
    log::warn("the probe of {} could not be started: {}", host, error.what());
    return false;
  }
  if (code == 0) return true;
  log::warn("{} did not pass the probe ({}; {}), and is used no more", host,
            code ? fmt::format("code {}", *code) : std::string("it did not end"), file.string());
  return false;
}

std::vector<std::string> names_of_hosts(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

std::optional<fs::path> run_folder_of(const LaunchPlan& plan, const Supervision& supervision) {
  const auto config = training_config(plan.command, supervision.own_program);
  return config ? std::optional<fs::path>(config->train.run_dir) : std::nullopt;
}

class Supervisor {
 public:
  Supervisor(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision)
      : plan_(plan), here_(here),
        supervision_(supervision), setting_{run_folder_of(plan, supervision), supervision.attempts,
                                            supervision.own_program, supervision.timeout_s} {
    if (setting_.attempts.empty() && setting_.run_dir) setting_.attempts = *setting_.run_dir / "attempts";
    if (setting_.attempts.empty() && (supervision.may_retry() || supervision.chain)) setting_.attempts = "attempts";
    state_.hosts = names_of_hosts(plan.allocation.hosts);
    state_.spares = names_of_hosts(usable_spares(plan, supervision.spares));
    if (supervision.chain) chain_.emplace(plan.allocation, here, *supervision.chain);
    if (setting_.run_dir) start_step_ = greatest_step(*setting_.run_dir);
  }

  int run() {
    log::info("starts {} on {} ({}); --dry-run shows the command", counted(plan_.ranks.total(), "rank"),
              shown_hosts(plan_.allocation.hosts), flavour_name(plan_.launcher.flavour));
    while (true) {
      AttemptRun run(plan_, here_, signals_, setting_, num_attempts_);
      const Attempt attempt = run.run([&] { look_after_chain(run); });
      ++num_attempts_;
      if (run.has_folder() && attempt.cause != Cause::kSuccess)
        log::warn("{} ({})", attempt_text(attempt), folder_of(attempt).string());
      if (goes_on(attempt)) continue;
      if (chain_) end_chain(attempt, run);
      return attempt.exit_code;
    }
  }

 private:
  fs::path folder_of(const Attempt& attempt) const { return folder_of_attempt(setting_.attempts, attempt.number); }

  // Returns whether another attempt follows, when its time has come.
  bool goes_on(const Attempt& attempt) {
    if (!supervision_.may_retry()) return false;
    FailoverDecision decision = decide_with_probed_spares(attempt);
    if (const int number = std::exchange(stopped_by_, 0)) return stop_by_signal(attempt, number);
    if (!decision.retries) return stop(attempt, decision.reason);
    log::info("runs it again{}: {}", decision.wait_s > 0 ? fmt::format(" in {:.0f} s", decision.wait_s) : std::string(),
              decision.reason);
    if (const int number = wait(decision.wait_s)) return stop_by_signal(attempt, number);
    state_ = std::move(decision.next);
    take_hosts(state_.hosts);
    return true;
  }

  // A spare that does not pass the probe is no spare: the decision is then made again without it.
  FailoverDecision decide_with_probed_spares(const Attempt& attempt) {
    AttemptOutcome outcome{attempt.cause, attempt.at_fault, attempt.made_progress(), attempt.silent, {}};
    for (const Suspect& each : attempt.suspects) outcome.suspects.push_back(each.host);
    std::set<std::string> fit;
    while (true) {
      FailoverDecision decision = decide_failover(state_, outcome, supervision_.limits);
      const auto failed = std::ranges::find_if(decision.swapped, [&](const auto& swap) {
        if (fit.contains(swap.second)) return false;
        if (!is_fit(swap.second, attempt)) return true;
        fit.insert(swap.second);
        return false;
      });
      if (failed == decision.swapped.end() || stopped_by_ != 0) return decision;
      std::erase(state_.spares, failed->second);
    }
  }

  bool is_fit(const std::string& spare, const Attempt& attempt) {
    return passes_probe(plan_, here_, supervision_.own_program, spare, folder_of(attempt), [this] {
      stopped_by_ = signals_.wait(std::chrono::milliseconds(0));
      return stopped_by_ != 0;
    });
  }

  void take_hosts(const std::vector<std::string>& hosts) {
    if (hosts.size() < plan_.allocation.hosts.size()) keep_first_hosts(plan_, hosts.size());
    for (size_t i = 0; i < hosts.size(); ++i) {
      std::string& name = plan_.allocation.hosts[i].name;
      plan_.has_spares_in_use = plan_.has_spares_in_use || name != hosts[i];
      name = hosts[i];
    }
    plan_.is_one_machine = plan_.allocation.is_this_machine(here_);
  }

  bool stop_by_signal(const Attempt& attempt, int number) {
    is_stopped_ = true;
    return stop(attempt, fmt::format("{} came before the next attempt", signal_name(number)));
  }

  bool stop(const Attempt& attempt, const std::string& reason) const {
    if (attempt.cause != Cause::kSuccess)
      log::warn("FAILOVER STOP: {}", reason);
    else if (num_attempts_ > 1)
      log::info("complete after {} attempts", num_attempts_);
    return false;
  }

  // Looks at the chain of jobs now and then while an attempt runs. A successor that shall not follow is cancelled at
  // once after a signal: whoever sent it may not wait for the end of the run.
  void look_after_chain(const AttemptRun& run) {
    if (!chain_ || Clock::now() < next_look_) return;
    next_look_ = Clock::now() + kChainLook;
    if (run.was_told_to_stop() && !is_chain_ended_) {
      is_chain_ended_ = !continues_in_next_job({Cause::kStopped, true, false, chain_->left_s()});
      if (is_chain_ended_)
        chain_->end(setting_.attempts, false, fmt::format("{} came", signal_name(run.stop_signal())));
    }
    if (run.was_told_to_stop()) return;
    has_stepped_ = has_stepped_ || run.has_stepped();
    chain_->look(setting_.attempts, start_step_, has_stepped_, WaitedSignals::has_come);
  }

  void end_chain(const Attempt& attempt, const AttemptRun& run) {
    if (is_chain_ended_) return;
    const StopRecord stop = run.stop();
    const bool was_told = is_stopped_ || run.was_told_to_stop() || stop.signal != 0;
    const bool continues = continues_in_next_job({attempt.cause, was_told, stop.by_limit, chain_->left_s()});
    const CauseRow& row = row_of(attempt.cause);
    chain_->end(setting_.attempts, continues, fmt::format("{}: {}", row.kind, row.action));
  }

  // Returns the number of a signal that came, or 0.
  int wait(double seconds) const { return signals_.wait(std::chrono::milliseconds(std::llround(seconds * 1000))); }

  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kChainLook{2};

  LaunchPlan plan_;
  const Surroundings& here_;
  const Supervision& supervision_;
  AttemptSetting setting_;
  const WaitedSignals signals_;
  FailoverState state_;
  int stopped_by_ = 0;  // a signal that came during a probe
  int num_attempts_ = 0;
  std::optional<JobChain> chain_;
  std::optional<int64_t> start_step_;  // that of a training
  Clock::time_point next_look_ = {};
  bool has_stepped_ = false, is_stopped_ = false, is_chain_ended_ = false;
};

}  // namespace

std::vector<Host> usable_spares(const LaunchPlan& plan, std::optional<int> wanted) {
  // A rank of a heterogeneous job stays in its component.
  if (plan.launcher.flavour == Flavour::kSockets || plan.allocation.is_heterogeneous()) return {};
  std::vector<Host> spares = plan.allocation.others;
  std::erase_if(spares, [&](const Host& host) { return host.slots > 0 && host.slots < plan.ranks.most(); });
  const auto most =
      static_cast<size_t>(wanted.value_or(automatic_spares(static_cast<int>(plan.allocation.hosts.size()))));
  if (spares.size() > most) spares.resize(most);
  return spares;
}

int supervise(const LaunchPlan& plan, const Surroundings& here, const Supervision& supervision) {
  return Supervisor(plan, here, supervision).run();
}

}  // namespace athanor::launch
