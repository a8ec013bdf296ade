#include "train/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.h"

namespace athanor {
namespace {

// A handler reaches nothing but what is global. 0: no signal yet.
std::atomic<int> first_signal{0};
std::atomic<bool> listening{false};
static_assert(std::atomic<int>::is_always_lock_free);

// Everything here is async-signal-safe: a lock-free exchange, write, _exit.
void on_signal(int number) {
  const int saved_errno = errno;
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) ::_exit(128 + number);
  static constexpr char kTerm[] = "SIGTERM: finishing the step and saving; once more exits at once\n";
  static constexpr char kInt[] = "\nSIGINT: finishing the step and saving; once more exits at once\n";  // after "^C"
  [[maybe_unused]] const ssize_t put = number == SIGINT ? ::write(STDERR_FILENO, kInt, sizeof(kInt) - 1)
                                                        : ::write(STDERR_FILENO, kTerm, sizeof(kTerm) - 1);
  errno = saved_errno;
}

}  // namespace

SignalGuard::SignalGuard() {
  ATHANOR_ASSERT(!listening.exchange(true));
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in other threads go on as if nothing had come
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, &old_term_);
  ::sigaction(SIGINT, &action, &old_int_);
}

SignalGuard::~SignalGuard() {
  ::sigaction(SIGTERM, &old_term_, nullptr);
  ::sigaction(SIGINT, &old_int_, nullptr);
  listening = false;
}

std::optional<int> SignalGuard::stop_signal() const {
  const int number = first_signal;
  return number ? std::optional(number) : std::nullopt;
}

}  // namespace athanor
