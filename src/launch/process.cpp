#include "launch/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

namespace athanor::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
constexpr auto kBeforeKill = 10s;

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> entries;
  for (char** entry = environ; entry && *entry; ++entry) {
    const bool is_replaced = std::ranges::any_of(
        added, [&](const auto& variable) { return std::string_view(*entry).starts_with(variable.first + "="); });
    if (!is_replaced) entries.emplace_back(*entry);
  }
  for (const auto& [name, value] : added) entries.push_back(name + "=" + value);
  return entries;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot make a pipe for", "a program");
    read = ends[0], write = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { read = close_one(read); }
  void close_write() { write = close_one(write); }

 private:
  static int close_one(int descriptor) {
    if (descriptor >= 0) ::close(descriptor);
    return -1;
  }
};

/// What the child does with its standard streams.
struct Streams {
  int input = -1, output = -1;  ///< descriptors; −1: as this process
};

// The signals that were blocked before this process began to wait for some of them: the child gets these.
struct ChildState {
  const char* path;
  char *const *arguments, *const *environment;
  const cpu_set_t* cpus;
  Streams streams;
  pid_t parent;
  int failure;  ///< the pipe on which an errno is reported
};

// Runs between fork and exec: only calls that are safe there.
[[noreturn]] void become_program(const ChildState& state) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::getppid() != state.parent) ::_exit(128 + SIGTERM);  // it was killed before prctl
  bool ready = true;
  if (state.streams.input >= 0) ready = ready && ::dup2(state.streams.input, 0) >= 0;
  if (state.streams.output >= 0)
    ready = ready && ::dup2(state.streams.output, 1) >= 0 && ::dup2(state.streams.output, 2) >= 0;
  if (state.cpus) ready = ready && ::sched_setaffinity(0, sizeof(cpu_set_t), state.cpus) == 0;
  if (ready) ::execve(state.path, state.arguments, state.environment);
  const int reason = errno;
  [[maybe_unused]] const auto written = ::write(state.failure, &reason, sizeof(reason));
  ::_exit(127);
}

pid_t start_with(const Program& program, const std::string& path, Streams streams) {
  std::vector<std::string> words = program.words, entries = environment_with(program.variables);
  const auto arguments = pointers_to(words), environment = pointers_to(entries);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : program.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus);
  Pipe failure;
  const ChildState state{path.c_str(), arguments.data(), environment.data(), program.cpus.empty() ? nullptr : &cpus,
                         streams,      ::getpid(),       failure.write};
  const pid_t child = ::fork();
  if (child < 0) fail_errno("cannot start", path);
  if (child == 0) become_program(state);
  ::setpgid(child, child);  // whichever process comes first
  failure.close_write();
  int reason = 0;
  ssize_t got = 0;
  while ((got = ::read(failure.read, &reason, sizeof(reason))) < 0 && errno == EINTR) continue;
  if (got != sizeof(reason)) return child;
  ::waitpid(child, nullptr, 0);
  fail<ConfigError>("cannot start {}: {}; nothing was started", path, std::strerror(reason));
}

std::string path_of_program(const std::string& name) {
  const auto path = own_surroundings().find_program(name);
  ATHANOR_CHECK(path, "{}: there is no such program that may be executed; nothing was started", name);
  return path->string();
}

int code_of_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// A program in its own process group would be stopped when it reads from the terminal.
class InputOfChild {
 public:
  InputOfChild() {
    if (::isatty(STDIN_FILENO) == 1) nothing_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  ~InputOfChild() {
    if (nothing_ >= 0) ::close(nothing_);
  }
  InputOfChild(const InputOfChild&) = delete;
  InputOfChild& operator=(const InputOfChild&) = delete;
  Streams streams() const { return {nothing_, -1}; }

 private:
  int nothing_ = -1;
};

// Blocks the signals that are waited for, during its lifetime.
class WaitedSignals {
 public:
  WaitedSignals() {
    ::sigemptyset(&set_);
    for (const int number : kPassedOn) ::sigaddset(&set_, number);
    ::sigaddset(&set_, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &set_, &old_);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;  // an ignored SIGCHLD would lose the exit codes
    ::sigaction(SIGCHLD, &standard, &old_child_);
  }
  ~WaitedSignals() {
    ::sigaction(SIGCHLD, &old_child_, nullptr);
    ::sigprocmask(SIG_SETMASK, &old_, nullptr);
  }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  // Returns the number of a signal, or 0 after a while.
  int wait(std::chrono::milliseconds at_most) const {
    const timespec limit{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
    const int number = ::sigtimedwait(&set_, nullptr, &limit);
    return number > 0 ? number : 0;
  }

 private:
  sigset_t set_, old_;
  struct sigaction old_child_ {};
};

// The programs of a call, and how they end.
class RunningPrograms {
 public:
  RunningPrograms(const PassedSignal& passed, double patience_s)
      : passed_(passed),
        patience_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_s))) {}

  void start(const std::vector<Program>& programs, Streams streams) {
    try {
      for (const Program& program : programs)
        running_.push_back(start_with(program, path_of_program(program.words[0]), streams));
    } catch (...) {
      send(SIGKILL);
      for (const pid_t process : running_) ::waitpid(process, nullptr, 0);
      throw;
    }
  }

  int wait_for_all(const WaitedSignals& signals) {
    while (!running_.empty()) {
      const int number = signals.wait(100ms);
      if (number != 0 && number != SIGCHLD) pass_on(number);
      collect();
      end_those_left();
    }
    return first_failure_;
  }

 private:
  void send(int number) const {
    for (const pid_t process : running_) ::kill(process, number);
  }

  void pass_on(int number) const {
    const int sent = passed_ ? passed_(number) : number;
    if (sent == 0) return log::warn("{} is not passed on: the launcher would end at once", signal_name(number));
    send(sent);
  }

  void collect() {
    std::erase_if(running_, [this](pid_t process) {
      int status = 0;
      const pid_t ended = ::waitpid(process, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
      const int code = ended == process ? code_of_status(status) : 1;
      if (code != 0 && first_failure_ == 0) first_failure_ = code, next_step_ = Clock::now() + patience_;
      return true;
    });
  }

  void end_those_left() {
    if (running_.empty() || first_failure_ == 0 || Clock::now() < next_step_) return;
    send(has_asked_ ? SIGKILL : SIGTERM);
    has_asked_ = true;
    next_step_ = Clock::now() + kBeforeKill;
  }

  const PassedSignal& passed_;
  Clock::duration patience_;
  std::vector<pid_t> running_;
  int first_failure_ = 0;
  bool has_asked_ = false;
  Clock::time_point next_step_;
};

// Reads until the end of the stream; false if that takes longer.
bool read_until(int descriptor, Clock::time_point end, std::string& text) {
  constexpr size_t kMostText = 1 << 20;
  char buffer[4096];
  while (text.size() < kMostText) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd waited{descriptor, POLLIN, 0};
    const int ready = left > 0ms ? ::poll(&waited, 1, static_cast<int>(left.count())) : 0;
    if (ready == 0) return false;
    const ssize_t got = ready > 0 ? ::read(descriptor, buffer, sizeof(buffer)) : -1;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    text.append(buffer, static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

pid_t start_program(const Program& program) {
  return start_with(program, path_of_program(program.words[0]), InputOfChild().streams());
}

int run_programs(const std::vector<Program>& programs, const PassedSignal& passed, double patience_s) {
  const WaitedSignals signals;
  const InputOfChild input;
  RunningPrograms running(passed, patience_s);
  running.start(programs, input.streams());
  return running.wait_for_all(signals);
}

std::optional<std::string> ask_tool(const std::vector<std::string>& words, const Surroundings& here) {
  const auto path = here.find_program(words[0]);
  if (!path) return std::nullopt;
  Pipe output;
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  pid_t child = 0;
  try {
    child = start_with({words}, path->string(), {nothing, output.write});
  } catch (const ConfigError&) {  // not a program of this machine: as if it were not there
    ::close(nothing);
    return std::nullopt;
  }
  ::close(nothing);
  output.close_write();
  const auto end = Clock::now() + here.tool_limit;
  std::string text;
  bool ended = read_until(output.read, end, text);
  int status = 0;
  // A tool may close its streams and hang, or wait in a driver, where SIGKILL does not reach it: it is left then.
  while (ended && ::waitpid(child, &status, WNOHANG) == 0) {
    ended = Clock::now() < end;
    ::usleep(500);
  }
  if (ended) return status == 0 ? std::optional(text) : std::nullopt;
  ::kill(-child, SIGKILL);
  for (int i = 0; i < 100 && ::waitpid(child, nullptr, WNOHANG) == 0; ++i) ::usleep(1000);
  return std::nullopt;
}

}  // namespace athanor::launch
