#include "launch/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

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

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

Clock::duration seconds(double number) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number));
}

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
  int descriptor() const { return nothing_; }

 private:
  int nothing_ = -1;
};

// The programs of a call, and how they end.
class RunningPrograms {
 public:
  RunningPrograms(const WaitedSignals& signals, const RunOptions& options) : signals_(signals), options_(options) {}

  void start(const std::vector<Program>& programs, Streams streams) {
    try {
      for (const Program& program : programs)
        running_.push_back(start_child(program, path_of_program(program.words[0]), streams));
    } catch (...) {
      send(SIGKILL);
      for (const pid_t process : running_) ::waitpid(process, nullptr, 0);
      throw;
    }
  }

  ProgramsEnd wait_for_all() {
    while (!running_.empty()) {
      wait(100ms);
      while (const int number = signals_.take())
        if (number != SIGCHLD) pass_on(number);
      collect();
      if (!running_.empty() && !end_.was_overdue && options_.is_overdue && options_.is_overdue()) {
        end_.was_overdue = true;
        end_at_ = Clock::now();
      }
      end_those_left();
    }
    if (options_.tee) options_.tee->finish();
    return end_;
  }

 private:
  void wait(std::chrono::milliseconds at_most) {
    if (options_.tee) return options_.tee->move(signals_.descriptor(), at_most);
    pollfd waited{signals_.descriptor(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(at_most.count()));
  }

  void send(int number) const {
    for (const pid_t process : running_) ::kill(options_.to_groups ? -process : process, number);
  }

  // Before the program is waited for: until then no other process can get its number.
  void kill_what_is_left(pid_t process) const {
    siginfo_t ended{};
    const bool has_ended = ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                           ended.si_pid == process;
    if (has_ended) ::kill(-process, SIGKILL);
  }

  void pass_on(int number) {
    end_.was_told_to_stop = end_.was_told_to_stop || asks_to_stop(number);
    const int sent = options_.passed ? options_.passed(number) : number;
    if (sent == 0) return log::warn("{} is not passed on: the launcher would end at once", signal_name(number));
    send(sent);
  }

  void collect() {
    std::erase_if(running_, [this](pid_t process) {
      int status = 0;
      if (options_.to_groups && end_.was_overdue) kill_what_is_left(process);
      const pid_t ended = ::waitpid(process, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
      const int code = ended == process ? code_of_status(status) : 1;
      if (code == 0 || end_.exit_code != 0) return true;
      end_.exit_code = code;
      if (!end_at_) end_at_ = Clock::now() + seconds(options_.patience_s);
      return true;
    });
  }

  void end_those_left() {
    if (running_.empty() || !end_at_ || Clock::now() < *end_at_) return;
    send(has_asked_ ? SIGKILL : SIGTERM);
    if (!has_asked_) send(SIGCONT);  // one that is stopped would not get it
    has_asked_ = true;
    end_at_ = Clock::now() + seconds(options_.kill_after_s);
  }

  const WaitedSignals& signals_;
  const RunOptions& options_;
  std::vector<pid_t> running_;
  ProgramsEnd end_;
  std::optional<Clock::time_point> end_at_;  // when those that still run get the next signal
  bool has_asked_ = false;
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

ProgramsEnd run_programs(const std::vector<Program>& programs, const WaitedSignals& signals,
                         const RunOptions& options) {
  const InputOfChild input;
  Streams streams = options.tee ? options.tee->streams() : Streams();
  streams.input = input.descriptor();
  RunningPrograms running(signals, options);
  running.start(programs, streams);
  if (options.tee) options.tee->are_started();
  return running.wait_for_all();
}

std::optional<int> run_into_file(const Program& program, const std::filesystem::path& file, std::chrono::seconds limit,
                                 const std::function<bool()>& gives_up) {
  constexpr auto kAfterTerm = 2s;
  const std::string path = path_of_program(program.words[0]);
  const int output = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (output < 0) fail_errno("cannot make", file);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  pid_t child = 0;
  try {
    child = start_child(program, path, {nothing, output, output});
  } catch (...) {
    ::close(nothing);
    ::close(output);
    throw;
  }
  ::close(nothing);
  ::close(output);
  int status = 0;
  const auto ends_before = [&](Clock::time_point end, const std::function<bool()>& stops) {
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() > end || (stops && stops())) return false;
      ::usleep(10'000);
    }
    return true;
  };
  if (ends_before(Clock::now() + limit, gives_up)) return code_of_status(status);
  ::kill(-child, SIGTERM);
  if (ends_before(Clock::now() + kAfterTerm, {})) return std::nullopt;
  ::kill(-child, SIGKILL);  // it may wait in a driver, where SIGKILL does not reach it: it is left then
  ends_before(Clock::now() + 100ms, {});
  return std::nullopt;
}

std::optional<std::string> ask_tool(const std::vector<std::string>& words, const Surroundings& here) {
  const auto path = here.find_program(words[0]);
  if (!path) return std::nullopt;
  Pipe output;
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  pid_t child = 0;
  try {
    child = start_child({words}, path->string(), {nothing, output.write, output.write});
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
