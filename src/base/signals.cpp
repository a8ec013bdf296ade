#include "base/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/launched.h"
#include "base/launcher_hold.h"

namespace athanor {
namespace {

// A handler can only reach globals. 0 means that there was no signal yet.
std::atomic<int> first_signal{0};
std::atomic<int64_t> first_at_s{0};  // when it came, on the monotonic clock
std::atomic<bool> save_asked{false}, listening{false}, holds_launcher{false}, in_a_job{false}, end_is_agreed{false};
std::atomic<const char*> what_follows{""};  // null: the handler prints nothing
std::atomic<Warning> on_usr1{Warning::kIgnore}, on_usr2{Warning::kIgnore};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<Warning>::is_always_lock_free);

void say(const char* text) { [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, text, std::strlen(text)); }

void say_what_follows(int number, const char* follows, const char* then) {
  say(number == SIGINT ? "\n" : "");  // after "^C"
  say(signal_name(number));
  say(": ");
  say(follows);
  say(then);
}

int64_t monotonic_s() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// One request can reach a rank twice: a scheduler signals all processes of a job (PBS), and the launcher among them
// passes it on, perhaps as another signal, and later if it was stopped meanwhile (LauncherHold).
bool is_the_same_request() {
  constexpr int64_t kRepeated_s = 3;
  return in_a_job && (end_is_agreed || monotonic_s() - first_at_s < kRepeated_s);
}

// Everything here is async-signal-safe: lock-free exchanges, strlen, write, kill, clock_gettime, _exit.
void ask_to_stop(int number) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, number)) {
    first_at_s = monotonic_s();
  } else {
    if (is_the_same_request()) return;
    LauncherHold::release();
    ::_exit(128 + number);
  }
  if (holds_launcher) LauncherHold::hold();
  if (const char* follows = what_follows) say_what_follows(number, follows, "; once more exits at once\n");
}

void on_signal(int number) {
  const int saved_errno = errno;
  const Warning warning = number == SIGUSR1 ? on_usr1.load() : number == SIGUSR2 ? on_usr2.load() : Warning::kStop;
  if (warning == Warning::kStop) ask_to_stop(number);
  if (warning == Warning::kSave && !save_asked.exchange(true)) {
    if (what_follows.load()) say_what_follows(number, "saving after this step", "\n");
  }
  errno = saved_errno;
}

}  // namespace

const char* signal_name(int number) {
  switch (number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    default: return "a signal";
  }
}

void SignalGuard::handle(int number, struct sigaction& old) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in other threads continue
  ::sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, &old);
}

SignalGuard::SignalGuard(const char* said) {
  ATHANOR_ASSERT(!listening.exchange(true));
  first_signal = 0;
  save_asked = false;
  in_a_job = launched().size > 1;
  end_is_agreed = false;
  what_follows = launched().size == 1 ? said : nullptr;
  handle(SIGTERM, old_term_);
  handle(SIGINT, old_int_);
  ::sigaction(SIGHUP, nullptr, &old_hup_);
  if (old_hup_.sa_handler != SIG_IGN) handle(SIGHUP, old_hup_);
}

SignalGuard::SignalGuard(const char* said, Warning usr1, Warning usr2) : SignalGuard(said) {
  warnings_ = true;
  on_usr1 = usr1;
  on_usr2 = usr2;
  holds_launcher = true;
  handle(SIGUSR1, old_usr1_);
  handle(SIGUSR2, old_usr2_);
}

void SignalGuard::agree_on_end() const { end_is_agreed = true; }

SignalGuard::~SignalGuard() {
  holds_launcher = false;
  listening = false;
  if (in_a_job && end_is_agreed) {  // what still comes must not end this process with another code
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(number, SIG_IGN);
    return;
  }
  if (warnings_) {
    ::sigaction(SIGUSR1, &old_usr1_, nullptr);
    ::sigaction(SIGUSR2, &old_usr2_, nullptr);
  }
  ::sigaction(SIGTERM, &old_term_, nullptr);
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGHUP, &old_hup_, nullptr);
}

std::optional<int> SignalGuard::stop_signal() const {
  const int number = first_signal;
  return number ? std::optional(number) : std::nullopt;
}

bool SignalGuard::take_save_request() const { return save_asked.exchange(false); }

BrokenPipeGuard::BrokenPipeGuard() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigemptyset(&ignore.sa_mask);
  ::sigaction(SIGPIPE, &ignore, &old_);
}

BrokenPipeGuard::~BrokenPipeGuard() { ::sigaction(SIGPIPE, &old_, nullptr); }

}  // namespace athanor
