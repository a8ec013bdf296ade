#include "saves/requests.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/exit_codes.h"
#include "base/job_limit.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "config/duration.h"
#include "record/run_folder.h"

namespace athanor::inline saves {

int exit_code_of_stop(int stop_signal) {
  const bool is_plain = stop_signal == 0 || stop_signal == SIGUSR1 || stop_signal == SIGUSR2;
  return is_plain ? exit_code::kStoppedAndSaved : exit_code::of_signal(stop_signal);
}

namespace {

constexpr double kLook_s = 5;            // between two looks into the folder, which may be on a slow file system
constexpr double kSavesBeforeEnd = 1.5;  // the last save may take longer than those before

std::chrono::steady_clock::duration seconds(double count) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(count));
}

}  // namespace

RunClock::RunClock(const RunConfig& config, int64_t nodes)
    : probe_request_(RunFolder{config.train.run_dir}.probe_request()),
      save_interval_s_(60 * config.checkpoint.interval_minutes) {
  if (config.checkpoint.interval.is_auto)
    best_.emplace(find_failure_rate(config.checkpoint.mtbf_hours, nodes, RunFolder{config.train.run_dir}.events()));
  if (const double wanted = *parse_duration(config.train.stop_after); wanted > 0)
    asked_ = {start_ + seconds(wanted), fmt::format("train.stop_after ({})", config.train.stop_after)};
  asked_margin_ = config.train.stop_margin;
  asked_margin_s_ = *parse_duration(config.train.stop_margin);
  if (asked_margin_s_ == 0) return;
  const auto job = find_job_limit();
  if (!job) return;
  const double left = job->ends_at_s - unix_time_s();
  job_ = {start_ + seconds(left), fmt::format("the end of {}", job->job)};
  log::info("{} ends in {}; the last save begins {} before, or earlier if saves take long", job->job,
            format_duration(left), config.train.stop_margin);
  if (left < asked_margin_s_)
    log::warn("that is less than train.stop_margin: the run stops after its first step; lower train.stop_margin");
}

double RunClock::margin_s() const { return std::max(asked_margin_s_, kSavesBeforeEnd * longest_save_s_); }

bool RunClock::passes(const Limit& limit, double margin_s) const {
  return step_s_ > 0 && Clock::now() + seconds(step_s_ + margin_s) > limit.at;
}

bool RunClock::time_is_up() const { return (job_ && passes(*job_, margin_s())) || (asked_ && passes(*asked_, 0)); }

std::string RunClock::limit() const {
  if (!job_ || (asked_ && asked_->at < job_->at - seconds(margin_s()))) return asked_ ? asked_->name : "";
  if (margin_s() > asked_margin_s_)
    return fmt::format("{}, less {} times the longest save ({})", job_->name, kSavesBeforeEnd,
                       format_duration(margin_s()));
  return fmt::format("{}, less train.stop_margin ({})", job_->name, asked_margin_);
}

bool RunClock::save_is_due() const {
  const double since_s = seconds_since(saved_);
  return (save_interval_s_ > 0 && since_s >= save_interval_s_) || (best_ && best_->is_due(since_s));
}

bool RunClock::probe_is_asked() {
  if (seconds_since(looked_for_probe_) < kLook_s) return false;
  looked_for_probe_ = Clock::now();
  std::error_code failed;
  return std::filesystem::exists(probe_request_, failed);
}

void RunClock::step_took(double seconds, bool pending) {
  const bool saving = std::exchange(began_, false) || pending;
  if (best_) step_s_ == 0 ? best_->restarted(seconds_since(start_)) : best_->step_took(seconds, saving);
  step_s_ = seconds;
}

void RunClock::save_began() {
  saved_ = Clock::now();
  began_ = true;
  if (best_) best_->began();
}

void RunClock::saved(double stopped_s, double seconds) {
  const double before_s = margin_s();
  longest_save_s_ = std::max(longest_save_s_, seconds);
  if (job_ && margin_s() > before_s)
    log::info("a save takes {}: the last one begins {} before {}", format_duration(seconds),
              format_duration(margin_s()), job_->name);
  if (!best_) return;
  if (const std::string change = best_->saved(stopped_s, seconds); !change.empty()) log::info("{}", change);
}

Requests agree_on_requests(comm::Communicator& world, const SignalGuard& signals, RunClock* clock, bool saving,
                           const std::exception_ptr& unreadable) {
  enum { kSignal, kTime, kSave, kSaving, kProbe, kCannotRead, kNumbers };
  const at::Tensor numbers = at::zeros({kNumbers}, at::kLong);
  auto* number = numbers.data_ptr<int64_t>();
  number[kSignal] = signals.stop_signal().value_or(0);
  number[kTime] = clock && clock->time_is_up();
  number[kSave] = signals.take_save_request() || (clock && clock->save_is_due());
  number[kSaving] = saving;
  number[kProbe] = clock && clock->probe_is_asked();
  number[kCannotRead] = unreadable ? world.size() - world.rank() : 0;  // the lowest rank has the largest number
  world.all_reduce(numbers, comm::Reduction::kMax).wait();
  Requests requests;
  requests.stop_signal = static_cast<int>(number[kSignal]);
  requests.time_is_up = number[kTime] != 0;
  requests.save = number[kSave] != 0;
  requests.probe = number[kProbe] != 0;
  requests.saving = number[kSaving] != 0;
  if (number[kCannotRead] != 0) requests.cannot_read = world.size() - static_cast<int>(number[kCannotRead]);
  return requests;
}

}  // namespace athanor::inline saves
