// Which work of the streams runs, and when.

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/error.h"
#include "guarded/queues.h"

namespace athanor::guarded {
namespace {

using Clock = std::chrono::steady_clock;

// After this long without a submission, work that waits for other ranks runs although the host does not wait for it.
constexpr auto kIdle = std::chrono::milliseconds(2);
// Far more than any other rank of a test takes.
constexpr auto kPatience = std::chrono::minutes(3);

}  // namespace

// Calls visit(id) for each stream that has tasks, in the order of their numbers; it may run them. A program that has
// made thousands of streams pays only for those in use.
template <class Visit>
void Queues::for_each_busy(const Visit& visit) {
  for (auto next = busy_.begin(); next != busy_.end();) {
    const StreamId id = *next;
    visit(id);
    next = busy_.upper_bound(id);
  }
}

bool Queues::can_run(const Stream& of) const {
  if (of.tasks.empty()) return false;
  const Task& first = of.tasks.front();
  return (!first.waits_for || first.waits_for->reached) && (!first.ready || first.ready());
}

void Queues::run_first(StreamId id) {
  Stream& of = stream(id);
  Task task = std::move(of.tasks.front());
  of.tasks.pop_front();
  if (of.tasks.empty()) busy_.erase(id);
  ++of.done;
  if (task.ready) --num_unready_;
  if (task.waits_for) of.time_ms = std::max(of.time_ms, task.waits_for->time_ms);
  if (task.is_launch) of.time_ms += ms_of_launch_;
  if (task.reaches) {
    static std::atomic<int64_t> number{0};
    task.reaches->reached = true;
    task.reaches->number = ++number;
    task.reaches->time_ms = of.time_ms;
  }
  if (task.work) task.work();
}

// Runs what this position needs, and nothing else. Returns false if other ranks are needed first.
bool Queues::try_run_to(StreamId id, int64_t position) {
  while (stream(id).done < position) {
    const Event waits_for = stream(id).tasks.front().waits_for;
    if (waits_for && !waits_for->reached && !try_run_to(waits_for->stream, waits_for->position)) return false;
    if (!can_run(stream(id))) return false;
    run_first(id);
  }
  return true;
}

bool Queues::run_to(StreamId id, int64_t position, std::chrono::milliseconds patience) {
  const auto begin = Clock::now();
  refuse_if_abandoned();
  while (!try_run_to(id, position)) {
    refuse_if_abandoned();
    if (run_what_can()) continue;
    if (Clock::now() - begin > patience) return false;
    mutex_.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    mutex_.lock();
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return true;
}

void Queues::run_to(StreamId id, int64_t position) {
  ATHANOR_CHECK_AS(Error, run_to(id, position, kPatience), "stream {} of the guarded device waits for other ranks", id);
}

bool Queues::run_out(StreamId id, std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  return run_to(id, stream(id).submitted, patience);
}

// Returns false if there was nothing to run.
bool Queues::run_what_can() {
  bool ran = false;
  for_each_busy([&](StreamId id) {
    for (; can_run(stream(id)); ran = true) run_first(id);
  });
  return ran;
}

void Queues::forget_all() {
  const std::lock_guard lock(mutex_);
  for (Stream& each : streams_) {
    each.done = each.submitted;
    each.tasks.clear();
  }
  busy_.clear();
  num_unready_ = 0;
}

void Queues::abandon() {
  const std::lock_guard lock(mutex_);
  forget_all();
  abandoned_ = true;
}

void Queues::advance_if_idle() {
  const std::lock_guard lock(mutex_);
  if (num_unready_ == 0 || Clock::now() - last_submit_ < kIdle) return;
  try {
    run_what_can();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Queues::wander(int64_t most_tasks) {
  for (int64_t i = 0; i < most_tasks; ++i) {
    std::vector<StreamId> ready;
    for_each_busy([&](StreamId id) {
      if (can_run(stream(id))) ready.push_back(id);
    });
    if (ready.empty()) return;
    run_first(ready[random_() % ready.size()]);
  }
}

void Queues::after_submit() {
  if (order_.kind == Order::Kind::kEarliest) {
    while (run_what_can()) continue;
  } else if (order_.kind == Order::Kind::kDrawn && random_() % 4 == 0) {
    wander(static_cast<int64_t>(random_() % 8));
  }
}

void Queues::wait_until(StreamId id, int64_t position) {
  if (order_.kind == Order::Kind::kDrawn) {
    while (stream(id).done < position && random_() % 8 != 0) wander(1);
  }
  run_to(id, position);
}

}  // namespace athanor::guarded
