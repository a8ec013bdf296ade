#include "train/requests.h"

#include <ATen/ATen.h>

#include "base/exit_codes.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "config/duration.h"
#include "train/job_limit.h"

namespace athanor {
namespace {

// The time at which the scheduler's job has to begin its last save, from now.
std::optional<double> seconds_to_job_end(const RunConfig& config, std::string& name) {
  const double margin = *parse_duration(config.train.stop_margin);
  if (margin == 0) return {};
  const auto job = find_job_limit();
  if (!job) return {};
  const double left = job->ends_at_s - unix_time_s();
  name = fmt::format("the end of {}, less train.stop_margin ({})", job->job, config.train.stop_margin);
  log::info("{} ends in {}; the last save begins {} before", job->job, format_duration(left), config.train.stop_margin);
  if (left < margin)
    log::warn("that is less than train.stop_margin: the run stops after its first step; lower train.stop_margin");
  return left - margin;
}

}  // namespace

int exit_code_of_stop(int stop_signal) {
  const bool is_plain = stop_signal == 0 || stop_signal == SIGUSR1 || stop_signal == SIGUSR2;
  return is_plain ? exit_code::kStoppedAndSaved : exit_code::of_signal(stop_signal);
}

RunClock::RunClock(const RunConfig& config) : save_interval_s_(60 * config.checkpoint.interval_minutes) {
  std::optional<double> left = seconds_to_job_end(config, limit_);
  const double wanted = *parse_duration(config.train.stop_after);
  if (wanted > 0 && (!left || wanted < *left)) {
    left = wanted;
    limit_ = fmt::format("train.stop_after ({})", config.train.stop_after);
  }
  if (left) end_ = start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*left));
}

bool RunClock::time_is_up() const {
  return end_ && step_s_ > 0 &&
         Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(step_s_)) > *end_;
}

bool RunClock::save_is_due() const { return save_interval_s_ > 0 && seconds_since(saved_) >= save_interval_s_; }

Requests agree_on_requests(comm::Communicator& world, const SignalGuard& signals, const RunClock* clock, bool saving,
                           const std::exception_ptr& unreadable) {
  enum { kSignal, kTime, kSave, kSaving, kCannotRead, kNumbers };
  const at::Tensor numbers = at::zeros({kNumbers}, at::kLong);
  auto* number = numbers.data_ptr<int64_t>();
  number[kSignal] = signals.stop_signal().value_or(0);
  number[kTime] = clock && clock->time_is_up();
  number[kSave] = signals.take_save_request() || (clock && clock->save_is_due());
  number[kSaving] = saving;
  number[kCannotRead] = unreadable ? world.size() - world.rank() : 0;  // the lowest rank has the largest number
  world.all_reduce(numbers, comm::Reduction::kMax).wait();
  Requests requests;
  requests.stop_signal = static_cast<int>(number[kSignal]);
  requests.time_is_up = number[kTime] != 0;
  requests.save = number[kSave] != 0;
  requests.saving = number[kSaving] != 0;
  if (number[kCannotRead] != 0) requests.cannot_read = world.size() - static_cast<int>(number[kCannotRead]);
  return requests;
}

}  // namespace athanor
