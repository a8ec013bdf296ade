#include "comm/progress.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/error.h"

namespace athanor::comm {

namespace {

using std::chrono::microseconds;
constexpr microseconds kShortSleep{20}, kLongSleep{200};   // while the caller computes
constexpr microseconds kShortestNap{5}, kLongestNap{100};  // of a caller that waits
constexpr std::chrono::milliseconds kIdleLook{100};
constexpr std::chrono::seconds kRollCall{2};
// A waiting caller gives its core away by sched_yield for so long, or until one takes longer than this: then others
// want the core, and a thread that sleeps gets it back sooner than one that yields, which waits for their time slices
// to end.
constexpr microseconds kEager{200}, kLongYield{40};

/// Doubles while nothing moves.
class Backoff {
 public:
  Backoff(microseconds shortest, microseconds longest) : shortest_(shortest), longest_(longest), sleep_(shortest) {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns, of this thread; the usual 50 µs would treble the short sleeps
  }
  void moved() { sleep_ = shortest_; }
  void sleep() {
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, longest_);
  }

 private:
  microseconds shortest_, longest_, sleep_;
};

}  // namespace

Progress::Progress(std::unique_ptr<Wire> wire) : wire_(std::move(wire)), roll_call_(*wire_) {
  roll_call_.open();
  thread_ = std::thread([this] { run(); });
}

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

bool Progress::settle(std::chrono::milliseconds limit) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  while (!active_.empty() && !failed_ && Clock::now() - begin < limit) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  return active_.empty() && !failed_;
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
      if (RollCall::owns(one.token)) {
        roll_call_.finished(one);
        continue;
      }
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
  Backoff backoff(kShortSleep, kLongSleep);
  std::unique_lock lock(mutex_);
  while (true) {
    const bool wanted =
        wake_.wait_for(lock, kIdleLook, [&] { return stopping_ || (!active_.empty() && num_waiting_ == 0); });
    if (stopping_) return;
    if (!wanted) {
      if (num_waiting_ == 0) advance();
      continue;
    }
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
  if (operation.done() || operation.failed()) return true;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_move = begin;
  bool yields = true;
  Backoff backoff(kShortestNap, kLongestNap);
  {
    std::lock_guard lock(mutex_);
    ++num_waiting_;
  }
  std::string failure;
  bool in_time = true;
  while (!operation.done() && !operation.failed()) {
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
    } else if (yields && now - last_move < kEager) {
      sched_yield();
      yields = Clock::now() - now < kLongYield;
    } else {
      backoff.sleep();
    }
  }
  {
    std::lock_guard lock(mutex_);
    if (!operation.done()) failed_ = true;
    if (--num_waiting_ == 0 && !active_.empty()) wake_.notify_one();
  }
  const bool over = operation.done() || operation.failed();
  if (!over && !failure.empty()) fail<CommError>("the network failed: {}", failure);
  return in_time || over;
}

void Progress::enroll(std::shared_ptr<const Members> members) {
  std::lock_guard lock(mutex_);
  roll_call_.enroll(std::move(members));
}

std::vector<Progress::Missing> Progress::missing(const Operation& operation) {
  std::unique_lock lock(mutex_);
  std::vector<Missing> missing;
  if (operation.number() == Operation::kBetweenTwo) {
    for (int peer : operation.peers()) missing.push_back({peer, true});
    return missing;
  }
  const int64_t question = roll_call_.ask(operation.members());
  const Clock::time_point begin = Clock::now();
  while (!roll_call_.answered(question) && Clock::now() - begin < kRollCall) {
    advance();
    lock.unlock();
    std::this_thread::sleep_for(kLongSleep);
    lock.lock();
  }
  const std::vector<int64_t> num_started = roll_call_.take(question);
  for (size_t i = 0; i < num_started.size(); ++i) {
    if (num_started[i] <= operation.number()) {
      missing.push_back({static_cast<int>(i), num_started[i] != RollCall::kSilent});
    }
  }
  return missing;
}

}  // namespace athanor::comm
