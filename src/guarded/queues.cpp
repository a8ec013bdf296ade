#include "guarded/queues.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace athanor::guarded {
Queues::StreamId Queues::new_stream() {
  const std::lock_guard lock(mutex_);
  return ++last_stream_;
}

void Queues::set_order(const Order& order) {
  const std::lock_guard lock(mutex_);
  abandoned_ = false;
  run_all();
  order_ = order;
  random_.seed(order.seed);
}

void Queues::keep_time(double ms_of_launch) {
  const std::lock_guard lock(mutex_);
  ms_of_launch_ = ms_of_launch;
  for (Stream& each : streams_) each.time_ms = 0;
}

bool Queues::keeps_time() const {
  const std::lock_guard lock(mutex_);
  return ms_of_launch_ > 0;
}

double Queues::time_ms(StreamId id) {
  const std::lock_guard lock(mutex_);
  return stream(id).time_ms;
}

void Queues::advance_to(StreamId id, double time_ms) {
  const std::lock_guard lock(mutex_);
  stream(id).time_ms = std::max(stream(id).time_ms, time_ms);
}

double Queues::between(const Event& from, const Event& to) {
  return to->owner->keeps_time() ? to->time_ms - from->time_ms : static_cast<double>(to->number - from->number);
}

Queues::Stream& Queues::stream(StreamId id) {
  while (std::ssize(streams_) <= id) streams_.emplace_back();
  return streams_[static_cast<size_t>(id)];
}

void Queues::add(StreamId id, Task task) {
  if (abandoned_) return;  // what it reads has not been computed
  Stream& to = stream(id);
  if (task.ready) ++num_unready_;
  to.tasks.push_back(std::move(task));
  busy_.insert(id);
  ++to.submitted;
  last_submit_ = std::chrono::steady_clock::now();
  after_submit();
}

void Queues::submit(StreamId id, const char* name, Work work) {
  const std::lock_guard lock(mutex_);
  if (id == captured_) return recording_.emplace_back(name, std::move(work)), void();
  ++counts_.launches;
  add(id, {name, std::move(work), nullptr, nullptr, nullptr, true});
}

void Queues::submit_uncounted(StreamId id, const char* name, Work work, bool recorded) {
  const std::lock_guard lock(mutex_);
  if (id == captured_ && recorded) return recording_.emplace_back(name, std::move(work)), void();
  add(id, {name, std::move(work), nullptr, nullptr, nullptr});
}

void Queues::submit_when(StreamId id, const char* name, std::function<bool()> ready) {
  const std::lock_guard lock(mutex_);
  add(id, {name, nullptr, nullptr, nullptr, std::move(ready)});
}

void Queues::begin_capture(StreamId id) {
  const std::lock_guard lock(mutex_);
  ATHANOR_ASSERT(captured_ < 0);
  captured_ = id;
}

Queues::Recording Queues::end_capture() {
  const std::lock_guard lock(mutex_);
  ATHANOR_ASSERT(captured_ >= 0);
  captured_ = -1;
  return std::exchange(recording_, {});
}

bool Queues::is_captured(StreamId id) const {
  const std::lock_guard lock(mutex_);
  return id == captured_;
}

void Queues::replay(StreamId id, const Recording& recording) {
  const std::lock_guard lock(mutex_);
  refuse_while_capturing("a graph is launched");
  ++counts_.launches;
  for (const auto& [name, work] : recording) add(id, {name, work, nullptr, nullptr, nullptr, true});
}

void Queues::refuse_while_capturing(const char* what) const {
  ATHANOR_CHECK_AS(Error, captured_ < 0, "{} while a graph is captured", what);
}

void Queues::refuse_if_abandoned() const {
  ATHANOR_CHECK_AS(Error, !abandoned_, "another rank of the guarded devices has failed");
}

Queues::Event Queues::record(StreamId id) {
  const std::lock_guard lock(mutex_);
  auto event = std::make_shared<Point>();
  event->stream = id;
  event->owner = this;
  event->is_recorded = id == captured_;
  if (event->is_recorded) return event;
  event->position = stream(id).submitted + 1;
  add(id, {"record", nullptr, nullptr, event, nullptr});
  return event;
}

void Queues::block(StreamId id, const Event& event) {
  const std::lock_guard lock(mutex_);
  if (id == captured_) {
    ATHANOR_CHECK_AS(Error, event->is_recorded, "a wait for work that is not part of the graph that is captured");
    return;
  }
  ATHANOR_CHECK_AS(Error, !event->is_recorded, "a wait for work that was recorded in a graph");
  if (is_skipped() || (event->reached && ms_of_launch_ == 0)) return;
  add(id, {"wait", nullptr, event, nullptr, nullptr});
}

bool Queues::is_skipped() { return synchronisations_++ == skipped_; }

bool Queues::query(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (event->reached) return true;
  refuse_if_abandoned();
  if (order_.kind == Order::Kind::kDrawn) wander(static_cast<int64_t>(random_() % 4));
  if (++event->num_queries > 1) try_run_to(event->stream, event->position);
  return event->reached;
}

bool Queues::is_reached(const Event& event) const {
  const std::lock_guard lock(mutex_);
  return event->reached;
}

bool Queues::query(StreamId id) {
  const std::lock_guard lock(mutex_);
  if (order_.kind == Order::Kind::kDrawn) wander(static_cast<int64_t>(random_() % 4));
  return stream(id).tasks.empty();
}

void Queues::synchronize(const Event& event) {
  const std::lock_guard lock(mutex_);
  refuse_while_capturing("the host waits for an event");
  ++counts_.waits;
  if (host_waits_to_skipped_-- == 0) return;
  if (!is_skipped()) wait_until(event->stream, event->position);
}

void Queues::synchronize(StreamId id) {
  const std::lock_guard lock(mutex_);
  refuse_while_capturing("the host waits for a stream");
  ++counts_.waits;
  if (!is_skipped()) wait_until(id, stream(id).submitted);
}

void Queues::synchronize_all() {
  const std::lock_guard lock(mutex_);
  refuse_while_capturing("the host waits for the device");
  ++counts_.waits;
  run_all();
}

void Queues::run_all() {
  for (size_t i = 0; i < streams_.size(); ++i) run_to(static_cast<StreamId>(i), streams_[i].submitted);
}

Queues::Counts Queues::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

int64_t Queues::skip(int64_t index) {
  const std::lock_guard lock(mutex_);
  skipped_ = index;
  return std::exchange(synchronisations_, 0);
}

void Queues::skip_host_wait(int64_t index) {
  const std::lock_guard lock(mutex_);
  host_waits_to_skipped_ = index;
}

}  // namespace athanor::guarded
