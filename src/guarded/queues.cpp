#include "guarded/queues.h"

#include <utility>

#include "base/error.h"

namespace athanor::guarded {

void Queues::set_order(const Order& order) {
  const std::lock_guard lock(mutex_);
  run_all();
  order_ = order;
  random_.seed(order.seed);
}

Queues::Stream& Queues::stream(StreamId id) {
  while (std::ssize(streams_) <= id) streams_.emplace_back();
  return streams_[static_cast<size_t>(id)];
}

void Queues::add(StreamId id, Task task) {
  Stream& to = stream(id);
  to.tasks.push_back(std::move(task));
  ++to.submitted;
  after_submit();
}

void Queues::submit(StreamId id, const char* name, Work work) {
  const std::lock_guard lock(mutex_);
  if (id == captured_) return recording_.emplace_back(name, std::move(work)), void();
  ++counts_.launches;
  add(id, {name, std::move(work), nullptr, nullptr});
}

void Queues::submit_uncounted(StreamId id, const char* name, Work work, bool recorded) {
  const std::lock_guard lock(mutex_);
  if (id == captured_ && recorded) return recording_.emplace_back(name, std::move(work)), void();
  add(id, {name, std::move(work), nullptr, nullptr});
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
  for (const auto& [name, work] : recording) add(id, {name, work, nullptr, nullptr});
}

void Queues::refuse_while_capturing(const char* what) const {
  ATHANOR_CHECK_AS(Error, captured_ < 0, "{} while a graph is captured", what);
}

Queues::Event Queues::record(StreamId id) {
  const std::lock_guard lock(mutex_);
  auto event = std::make_shared<Point>();
  event->stream = id;
  event->is_recorded = id == captured_;
  if (event->is_recorded) return event;
  event->position = stream(id).submitted + 1;
  add(id, {"record", nullptr, nullptr, event});
  return event;
}

void Queues::block(StreamId id, const Event& event) {
  const std::lock_guard lock(mutex_);
  if (id == captured_) {
    ATHANOR_CHECK_AS(Error, event->is_recorded, "a wait for work that is not part of the graph that is captured");
    return;
  }
  ATHANOR_CHECK_AS(Error, !event->is_recorded, "a wait for work that was recorded in a graph");
  if (is_skipped() || event->reached) return;
  add(id, {"wait", nullptr, event, nullptr});
}

bool Queues::can_run(const Stream& of) const {
  return !of.tasks.empty() && (!of.tasks.front().waits_for || of.tasks.front().waits_for->reached);
}

void Queues::run_first(Stream& of) {
  Task task = std::move(of.tasks.front());
  of.tasks.pop_front();
  ++of.done;
  if (task.reaches) task.reaches->reached = true;
  if (task.work) task.work();
}

// Runs what this position needs, and nothing else.
void Queues::run_to(StreamId id, int64_t position) {
  while (stream(id).done < position) {
    Stream& of = stream(id);
    const Event waits_for = of.tasks.front().waits_for;
    if (waits_for && !waits_for->reached) run_to(waits_for->stream, waits_for->position);
    run_first(stream(id));
  }
}

void Queues::wander(int64_t most_tasks) {
  for (int64_t i = 0; i < most_tasks; ++i) {
    std::vector<Stream*> ready;
    for (Stream& each : streams_)
      if (can_run(each)) ready.push_back(&each);
    if (ready.empty()) return;
    run_first(*ready[random_() % ready.size()]);
  }
}

void Queues::after_submit() {
  if (order_.kind == Order::Kind::kEarliest) {
    // Points are submitted before what waits for them, so that everything can run.
    run_all();
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

bool Queues::is_skipped() { return synchronisations_++ == skipped_; }

bool Queues::query(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (order_.kind == Order::Kind::kDrawn) wander(static_cast<int64_t>(random_() % 4));
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

}  // namespace athanor::guarded
