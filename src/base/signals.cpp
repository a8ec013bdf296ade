#include "base/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/launched.h"

namespace athanor {
namespace {

// A handler can only reach globals. 0 means that there was no signal yet.
std::atomic<int> first_signal{0};
std::atomic<bool> listening{false};
std::atomic<const char*> what_follows{""};  // null: the handler prints nothing
static_assert(std::atomic<int>::is_always_lock_free);

void say(const char* text) { [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, text, std::strlen(text)); }

// Everything here is async-signal-safe: a lock-free exchange, strlen, write, _exit.
void on_signal(int number) {
  const int saved_errno = errno;
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) ::_exit(128 + number);
  if (const char* follows = what_follows) {
    say(number == SIGINT ? "\nSIGINT: " : "SIGTERM: ");  // the new line comes after "^C"
    say(follows);
    say("; once more exits at once\n");
  }
  errno = saved_errno;
}

}  // namespace

SignalGuard::SignalGuard(const char* said) {
  ATHANOR_ASSERT(!listening.exchange(true));
  first_signal = 0;
  what_follows = launched().size == 1 ? said : nullptr;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in other threads continue
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

BrokenPipeGuard::BrokenPipeGuard() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigemptyset(&ignore.sa_mask);
  ::sigaction(SIGPIPE, &ignore, &old_);
}

BrokenPipeGuard::~BrokenPipeGuard() { ::sigaction(SIGPIPE, &old_, nullptr); }

}  // namespace athanor
