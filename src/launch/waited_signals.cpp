#include "launch/waited_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace athanor::launch {

namespace {

constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

// A blocked signal is waited for although it is ignored, so what a shell or nohup lets this process ignore is left out.
bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

WaitedSignals::WaitedSignals() {
  sigset_t waited, blocked;
  ::sigemptyset(&waited);
  ::sigaddset(&waited, SIGCHLD);
  for (const int number : kPassedOn)
    if (!is_ignored(number)) ::sigaddset(&waited, number);
  blocked = waited;
  ::sigaddset(&blocked, SIGPIPE);
  descriptor_ = ::signalfd(-1, &waited, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) fail_errno("cannot wait for", "signals");
  ::pthread_sigmask(SIG_BLOCK, &blocked, &old_);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;  // an ignored SIGCHLD would lose the exit codes
  ::sigaction(SIGCHLD, &standard, &old_child_);
}

WaitedSignals::~WaitedSignals() {
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  const timespec now{};
  if (::sigismember(&old_, SIGPIPE) == 0) ::sigtimedwait(&broken_pipe, nullptr, &now);  // it has been dealt with
  ::sigaction(SIGCHLD, &old_child_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  ::close(descriptor_);
}

int WaitedSignals::take() const {
  signalfd_siginfo signal{};
  return ::read(descriptor_, &signal, sizeof(signal)) == sizeof(signal) ? static_cast<int>(signal.ssi_signo) : 0;
}

bool WaitedSignals::has_come() {
  sigset_t pending;
  ::sigemptyset(&pending);
  ::sigpending(&pending);
  return std::ranges::any_of(kPassedOn, [&](int number) { return ::sigismember(&pending, number) == 1; });
}

int WaitedSignals::wait(std::chrono::milliseconds at_most) const {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (true) {
    while (const int number = take())
      if (number != SIGCHLD) return number;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return 0;
    pollfd waited{descriptor_, POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(std::min<long long>(left, 60'000)));
  }
}

}  // namespace athanor::launch
