#include "wire/message_pump.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <functional>

#include "wire/index_tree.h"
#include "wire/lost_rank.h"

namespace athanor::comm {

namespace {

using std::chrono::microseconds;
constexpr microseconds kShortSleep{20}, kLongSleep{200};   // while the caller computes
constexpr microseconds kShortestNap{5}, kLongestNap{100};  // for a caller that waits
constexpr std::chrono::milliseconds kIdleLook{100};
// If no rank seems late, look once more after this time before the network is blamed: the missing rank may just have
// come.
constexpr std::chrono::seconds kSecondLook{5};
// How long the first member of a large group may take to find the late ranks, after this one has timed out; and how
// often it is asked.
constexpr std::chrono::seconds kFirstMemberLooks{4};
constexpr std::chrono::milliseconds kAskAgain{250};
// A waiting caller gives its core away by sched_yield for this long, or until one yield takes longer than kLongYield.
// Then others want the core, and a thread that sleeps gets it back sooner than one that yields, which waits for their
// time slices to end.
constexpr microseconds kEager{200}, kLongYield{40};

/// A sleep that doubles while no message moves.
class Backoff {
 public:
  Backoff(microseconds shortest, microseconds longest) : shortest_(shortest), longest_(longest), sleep_(shortest) {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // in ns, for this thread; the default of 50 µs would triple the short sleeps
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

MessagePump::MessagePump(std::unique_ptr<Wire> wire)
    : wire_(std::move(wire)), state_(wire_->rank()), roll_call_(*wire_, state_) {
  roll_call_.open();
  thread_ = std::thread([this] { run(); });
}

MessagePump::~MessagePump() { stop(); }

void MessagePump::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void MessagePump::close() {
  stop();
  wire_->close();
}

bool MessagePump::settle(std::chrono::milliseconds limit) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  while (num_active_ > 0 && !failed_ && Clock::now() - begin < limit) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  return num_active_ == 0 && !failed_;
}

std::shared_ptr<Operation> MessagePump::start(const std::shared_ptr<Members>& members, Kind kind, int peer,
                                              Operation::Phases phases, std::shared_ptr<void> held) {
  std::lock_guard lock(mutex_);
  Sequence& sequence = kind == Kind::kCollective ? members->collectives : members->between(kind, peer);
  auto operation = std::make_shared<Operation>(members, sequence, std::move(phases), std::move(held));
  members->thread = std::this_thread::get_id();
  sequence.start(operation);  // first, because posted messages have to outlive any exception of advance()
  ++num_active_;
  try {
    num_active_ -= sequence.advance(*wire_);
  } catch (const std::exception& error) {
    note_failure(error);
    throw MissingRanks(fmt::format("the network failed: {}", error.what()), lost_);
  }
  if (num_active_ == 1 && num_waiting_ == 0) wake_.notify_one();
  return operation;
}

bool MessagePump::advance() {
  finished_.clear();
  if (!failure_.empty()) {
    wire_->poll_after_failure();
    return false;
  }
  try {
    wire_->poll(finished_);
    for (const Wire::Finished& one : finished_) {
      if (RollCall::owns(one.token)) {
        roll_call_.finished(one);
        continue;
      }
      auto* transfer = reinterpret_cast<Operation::Transfer*>(one.token);
      Operation& operation = *transfer->operation;
      operation.finished(*transfer, one.bytes);
      if (operation.done() || operation.failed()) end(operation);
    }
  } catch (const std::exception& error) {
    note_failure(error);  // waiting callers report it; no message moves any more
  }
  return !finished_.empty() || wire_->has_moved();
}

void MessagePump::note_failure(const std::exception& error) {
  failure_ = error.what();
  if (const auto* lost = dynamic_cast<const LostRank*>(&error)) lost_ = {{lost->rank(), host_of(lost->rank())}};
}

void MessagePump::end(Operation& operation) {
  const std::shared_ptr<Members> members = operation.members();  // the operation and the sequence may be destroyed, and
                                                                 // the members with them
  Sequence& sequence = operation.sequence();
  if (operation.failed()) sequence.fail(operation.error());
  num_active_ -= sequence.advance(*wire_);
}

void MessagePump::run() {
  Backoff backoff(kShortSleep, kLongSleep);
  std::unique_lock lock(mutex_);
  while (true) {
    const bool wanted =
        wake_.wait_for(lock, kIdleLook, [&] { return stopping_ || (num_active_ > 0 && num_waiting_ == 0); });
    if (stopping_) return;
    if (!wanted) {
      while (num_waiting_ == 0 && advance()) {  // many may ask at once
      }
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

bool MessagePump::wait_for(const Operation& operation, std::chrono::milliseconds limit) {
  if (operation.done() || operation.failed()) return true;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_move = begin;
  bool yields = true;
  Backoff backoff(kShortestNap, kLongestNap);
  std::string failure;
  std::vector<RankOnHost> lost;
  while (!operation.done() && !operation.failed()) {
    bool moved = false;
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) {
      moved = advance();
      failure = failure_;
      if (!failure.empty()) lost = lost_;
    }
    if (!failure.empty()) {
      if (operation.done() || operation.failed()) return true;
      throw MissingRanks(fmt::format("the network failed: {}", failure), lost);
    }
    const Clock::time_point now = Clock::now();
    if (moved) {
      last_move = now;
      backoff.moved();
    } else if (now - begin > limit) {
      return false;
    } else if (yields && now - last_move < kEager) {
      sched_yield();
      yields = Clock::now() - now < kLongYield;
    } else {
      backoff.sleep();
    }
  }
  return true;
}

namespace {

bool works(const Late& one, std::chrono::milliseconds timeout) { return one.answers && one.still_ms < timeout.count(); }

/// Returns the time until the first of the working ranks may have done no work for `timeout`.
std::chrono::milliseconds until_one_may_have_stopped(const std::vector<Late>& late, std::chrono::milliseconds timeout) {
  std::chrono::milliseconds left = timeout;
  for (const Late& one : late) left = std::min(left, timeout - std::chrono::milliseconds(one.still_ms));
  return left;
}

/// Marks one thread as waiting while the object lives.
class Waiting {
 public:
  Waiting(std::mutex& mutex, std::function<void()> end) : mutex_(mutex), end_(std::move(end)) {}
  ~Waiting() {
    std::lock_guard lock(mutex_);
    end_();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::mutex& mutex_;
  std::function<void()> end_;
};

}  // namespace

bool MessagePump::wait(const Operation& operation, std::chrono::milliseconds timeout, std::vector<Late>& late) {
  if (operation.done() || operation.failed()) return true;
  const Clock::time_point begin = Clock::now();
  {
    std::lock_guard lock(mutex_);
    ++num_waiting_;
    state_.begin_wait(operation);
  }
  const Waiting waiting(mutex_, [&] {
    // Others may in turn have waited for this rank, which waited long: that time was not its own work.
    state_.end_wait(operation, Clock::now() - begin > timeout / 8, !operation.done());
    if (!operation.done()) failed_ = true;
    if (--num_waiting_ == 0 && num_active_ > 0) wake_.notify_one();
  });
  bool worked = false, looked = false;
  for (std::chrono::milliseconds patience = timeout; !wait_for(operation, patience);) {
    late = look(operation);
    if (!late.empty()) {
      patience = until_one_may_have_stopped(late, timeout);
      if (std::erase_if(late, [&](const Late& one) { return works(one, timeout); }); !late.empty()) {
        return wait_for(operation, std::chrono::milliseconds(0));
      }
      worked = true;
    } else if (worked) {  // the missing ranks have come: from here on the collective may take its time
      patience = timeout;
      worked = false;
    } else if (!looked) {
      patience = std::min<std::chrono::milliseconds>(timeout, kSecondLook);
      looked = true;
    } else {
      return wait_for(operation, std::chrono::milliseconds(0));
    }
  }
  return true;
}

bool MessagePump::move_until(const Operation& operation, const std::function<bool()>& over) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (over()) return true;
    if (!failure_.empty() || operation.done()) return false;
    if (advance()) continue;
    lock.unlock();
    std::this_thread::sleep_for(kLongSleep);
    lock.lock();
  }
}

std::vector<Late> MessagePump::look(const Operation& operation) {
  if (const auto found = ask_first_member(operation)) return *found;
  std::unique_lock lock(mutex_);
  Look look(roll_call_, state_, operation);
  lock.unlock();
  move_until(operation, [&] { return look.over(); });
  lock.lock();
  const auto late = look.late();
  const Members& members = *operation.members();
  if (members.index == 0) roll_call_.publish({members.id, operation.number()}, Finding::of(late));
  return late;
}

// Returns what the first member of a large group has found; none if it does not wait in this call, or takes too long.
std::optional<std::vector<Late>> MessagePump::ask_first_member(const Operation& operation) {
  const Members& members = *operation.members();
  if (operation.sequence().kind() != Kind::kCollective || members.index == 0 || members.size() <= kFewMembers)
    return {};
  const CallId call{members.id, operation.number()};
  const auto end = Clock::now() + kFirstMemberLooks;
  while (Clock::now() < end) {
    int64_t question = 0;
    {
      std::lock_guard lock(mutex_);
      question = roll_call_.ask_for_finding(members.wire_ranks[0], call);
    }
    const auto asked = Clock::now();
    const bool answered = move_until(operation, [&] {
      return roll_call_.answer(question).state != Answer::State::kSilent || Clock::now() - asked > Look::kPatience;
    });
    std::unique_lock lock(mutex_);
    const Answer answer = roll_call_.answer(question);
    const Finding finding = roll_call_.finding(question);
    roll_call_.forget(question);
    if (finding.known()) return finding.list();
    if (!answered || answer.state != Answer::State::kWaits || answer.call != call) return {};
    lock.unlock();
    const auto next = Clock::now() + kAskAgain;
    move_until(operation, [&] { return Clock::now() > next; });
  }
  return {};
}

void MessagePump::enroll(const std::shared_ptr<Members>& members) {
  std::lock_guard lock(mutex_);
  state_.enroll(members);
}

std::string MessagePump::name_of(int rank) const {
  const std::string host = host_of(rank);
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, host);
}

std::string MessagePump::host_of(int rank) const {
  const auto at = static_cast<size_t>(rank);
  return at < hosts_.size() ? hosts_[at] : "";
}

}  // namespace athanor::comm
