#include "comm/progress.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/error.h"

namespace athanor::comm {

namespace {

using std::chrono::microseconds;
constexpr microseconds kShortSleep{20}, kLongSleep{200};
constexpr microseconds kEager{200};  // a waiting caller gives its core away only by sched_yield for so long

/// Doubles while nothing moves.
class Backoff {
 public:
  void moved() { sleep_ = kShortSleep; }
  void sleep() {
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, kLongSleep);
  }

 private:
  microseconds sleep_ = kShortSleep;
};

}  // namespace

Progress::Progress(std::unique_ptr<Wire> wire) : wire_(std::move(wire)), thread_([this] { run(); }) {}

Progress::~Progress() {
  stop();
  // The network may still write to what is under way.
  for (std::shared_ptr<Operation>& operation : active_) new std::shared_ptr<Operation>(std::move(operation));
}

void Progress::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Progress::close() {
  stop();
  wire_->close();
}

bool Progress::idle() {
  std::lock_guard lock(mutex_);
  return active_.empty();
}

void Progress::start(std::shared_ptr<Operation> operation) {
  std::lock_guard lock(mutex_);
  Operation& started = *operation;
  active_.push_back(std::move(operation));  // first: what is posted has to outlive whatever begin() throws
  try {
    started.begin(*wire_);
  } catch (const std::exception& error) {
    failure_ = error.what();
    fail<CommError>("the network failed: {}", error.what());
  }
  if (started.done()) return active_.pop_back();
  if (active_.size() == 1 && num_waiting_ == 0) wake_.notify_one();
}

bool Progress::advance() {
  finished_.clear();
  if (!failure_.empty()) return false;
  try {
    wire_->poll(finished_);
    for (const Wire::Finished& one : finished_) {
      auto* transfer = reinterpret_cast<Operation::Transfer*>(one.token);
      Operation* operation = transfer->operation;
      operation->finished(*transfer, one.bytes);
      if (operation->done()) {
        const auto found = std::find_if(active_.begin(), active_.end(), [&](auto& a) { return a.get() == operation; });
        std::swap(*found, active_.back());
        active_.pop_back();
      }
    }
  } catch (const std::exception& error) {
    failure_ = error.what();  // whoever waits says it; nothing moves any more
  }
  return !finished_.empty();
}

void Progress::run() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; the usual 50 µs would treble the short sleeps
  Backoff backoff;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || (!active_.empty() && num_waiting_ == 0); });
    if (stopping_) return;
    if (advance()) {
      backoff.moved();
    } else {
      lock.unlock();
      backoff.sleep();
      lock.lock();
    }
  }
}

bool Progress::wait(const Operation& operation, std::chrono::milliseconds timeout) {
  if (operation.done()) return true;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_move = begin;
  Backoff backoff;
  {
    std::lock_guard lock(mutex_);
    ++num_waiting_;
  }
  std::string failure;
  bool in_time = true;
  while (!operation.done()) {
    bool moved = false;
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) {
      moved = advance();
      failure = failure_;
    }
    if (!failure.empty()) break;
    const Clock::time_point now = Clock::now();
    if (moved) {
      last_move = now;
      backoff.moved();
    } else if (now - begin > timeout) {
      in_time = false;
      break;
    } else if (now - last_move < kEager) {
      sched_yield();
    } else {
      backoff.sleep();
    }
  }
  {
    std::lock_guard lock(mutex_);
    if (--num_waiting_ == 0 && !active_.empty()) wake_.notify_one();
  }
  if (!operation.done() && !failure.empty()) fail<CommError>("the network failed: {}", failure);
  return in_time || operation.done();
}

std::vector<int> Progress::missing(const Operation& operation) {
  std::lock_guard lock(mutex_);
  return operation.missing();
}

}  // namespace athanor::comm
