#include "launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "launch/surroundings.h"

namespace athanor::launch {
namespace {

int close_one(int descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

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

// What a child needs between fork and exec, made before the fork.
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
  // A shell without job control lets what it runs in the background ignore SIGINT; a program that ignores it cannot be
  // asked to end by it. SIGHUP stays ignored if it is, as nohup wants it.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) ::signal(number, SIG_DFL);
  if (::getppid() != state.parent) ::_exit(128 + SIGTERM);  // it was killed before prctl
  bool ready = true;
  if (state.streams.input >= 0) ready = ready && ::dup2(state.streams.input, 0) >= 0;
  if (state.streams.output >= 0) ready = ready && ::dup2(state.streams.output, 1) >= 0;
  if (state.streams.errors >= 0) ready = ready && ::dup2(state.streams.errors, 2) >= 0;
  if (state.cpus) ready = ready && ::sched_setaffinity(0, sizeof(cpu_set_t), state.cpus) == 0;
  if (ready) ::execve(state.path, state.arguments, state.environment);
  const int reason = errno;
  [[maybe_unused]] const auto written = ::write(state.failure, &reason, sizeof(reason));
  ::_exit(127);
}

}  // namespace

Pipe::Pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot make a pipe for", "a program");
  read = ends[0], write = ends[1];
}

Pipe::~Pipe() {
  close_read();
  close_write();
}

void Pipe::close_read() { read = close_one(read); }

void Pipe::close_write() { write = close_one(write); }

pid_t start_child(const Program& program, const std::string& path, Streams streams) {
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

}  // namespace athanor::launch
