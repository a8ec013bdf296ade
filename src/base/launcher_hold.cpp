#include "base/launcher_hold.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace athanor {
namespace {

// A handler of a signal can only reach globals. 0 and -1: none.
std::atomic<pid_t> daemon{0};
std::atomic<int> to_shell{-1};
std::atomic<bool> armed{false}, held{false};
std::atomic<unsigned> limit_s{0};

// Written once, before `armed` is set.
constexpr size_t kMaxSiblings = 1024;  // ranks of a host, and the connections of mpirun to other hosts
std::array<pid_t, kMaxSiblings> siblings;
size_t num_siblings = 0;
std::array<char, 4096> failure_path, stop_path;  // stop_path is empty without `athanor launch`

// A scheduler that signals all processes may reach the ranks before `athanor launch` has made its file. The daemon
// sends SIGKILL a second after its SIGTERM, so half of that is left to look again.
constexpr suseconds_t kForStopFile_us = 500'000;
std::atomic<bool> awaits_stop_file{false};

// The daemons of Open MPI and of PRRTE, as the kernel names them.
constexpr std::array kDaemons = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "prte"};

bool is_daemon(pid_t process) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/comm"), name);
  name = name.substr(0, name.find('.'));  // Debian calls them mpirun.openmpi
  return std::ranges::find(kDaemons, name) != kDaemons.end();
}

pid_t parent_of(pid_t process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  const auto name_end = line.rfind(") ");  // "PID (name) state PPID ..."
  return name_end == std::string::npos ? 0 : static_cast<pid_t>(std::atoi(line.c_str() + name_end + 4));
}

// The daemon is the parent, or further up if a script stands in between. mpirun's own parents are not asked.
pid_t find_daemon() {
  if (!std::getenv("OMPI_COMM_WORLD_RANK")) return 0;
  constexpr int kScripts = 4;
  pid_t process = ::getppid();
  for (int i = 0; i <= kScripts && process > 1; ++i, process = parent_of(process)) {
    if (is_daemon(process)) return process;
  }
  return 0;
}

// The shell lets the daemon continue if its input ends between the two lines: this process is gone then.
pid_t start_shell(pid_t waits_for, int& to_write) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return 0;
  const std::string script =
      "trap '' TERM INT HUP USR1 USR2; read held || exit; read released || kill -CONT " + std::to_string(waits_for);
  std::string shell = "/bin/sh", option = "-c", text = script;
  char* words[] = {shell.data(), option.data(), text.data(), nullptr};
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // signals to the rank's group do not reach it
  ::posix_spawnattr_setpgroup(&attributes, 0);
  pid_t shell_pid = 0;
  const int error = ::posix_spawn(&shell_pid, "/bin/sh", &files, &attributes, words, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[0]);
  if (error != 0) {
    ::close(ends[1]);
    return 0;
  }
  to_write = ends[1];
  return shell_pid;
}

void tell_shell() noexcept {
  const int pipe = to_shell;
  if (pipe >= 0 && ::write(pipe, "\n", 1) < 0) return;  // the shell is gone, and with it the pipe
}

// The processes that the daemon has started: the ranks of this host.
void find_siblings(pid_t process) {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child; children >> child && num_siblings < kMaxSiblings;) siblings[num_siblings++] = child;
  }
}

// A daemon has removed a rank that ended from its table before it sends signals to the others.
bool job_is_whole() noexcept {
  for (size_t i = 0; i < num_siblings; ++i) {
    if (::kill(siblings[i], 0) != 0 && errno == ESRCH) return false;
  }
  return ::access(failure_path.data(), F_OK) != 0;
}

void stop_daemon() noexcept {
  if (held.exchange(true)) return;
  tell_shell();
  ::kill(daemon, SIGSTOP);
}

bool is_told_to_stop() noexcept { return stop_path[0] == '\0' || ::access(stop_path.data(), F_OK) == 0; }

void hold_for_a_while() noexcept {
  stop_daemon();
  ::alarm(limit_s);
}

void on_alarm(int) {
  const int saved_errno = errno;
  if (!awaits_stop_file.exchange(false))
    LauncherHold::release();
  else if (is_told_to_stop())
    hold_for_a_while();
  errno = saved_errno;
}

}  // namespace

LauncherHold::LauncherHold() {
  ATHANOR_ASSERT(daemon == 0);
  const pid_t mpi_daemon = find_daemon();
  if (mpi_daemon == 0) return;
  const char* local = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (local && std::string(local) == "0") {
    int pipe = -1;
    shell_ = start_shell(mpi_daemon, pipe);
    if (shell_ == 0) return;  // without the shell a daemon might stay stopped for ever
    to_shell = pipe;
  }
  daemon = mpi_daemon;
}

LauncherHold::~LauncherHold() {
  release();
  if (armed_) {
    ::alarm(0);
    ::sigaction(SIGALRM, &old_alarm_, nullptr);
  }
  armed = false;
  daemon = 0;
  if (const int pipe = to_shell.exchange(-1); pipe >= 0) ::close(pipe);
  if (shell_ != 0) ::waitpid(shell_, nullptr, 0);
}

void LauncherHold::arm(double seconds, const std::string& failure_file) {
  if (daemon == 0 || failure_file.size() >= failure_path.size()) return;
  limit_s = static_cast<unsigned>(std::clamp(std::ceil(seconds), 1.0, 1e6));
  if (std::exchange(armed_, true)) return;
  num_siblings = 0;
  find_siblings(daemon);
  std::ranges::copy(failure_file + '\0', failure_path.begin());
  const char* stop_file = std::getenv(kStopFileVariable);
  const std::string stop = stop_file ? stop_file : "";
  if (stop.size() < stop_path.size()) std::ranges::copy(stop + '\0', stop_path.begin());
  struct sigaction action {};
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGALRM, &action, &old_alarm_);
  armed = true;
}

void LauncherHold::hold() noexcept {
  if (!armed || held || !job_is_whole()) return;
  if (is_told_to_stop()) return hold_for_a_while();
  awaits_stop_file = true;
  const itimerval once{{0, 0}, {0, kForStopFile_us}};
  ::setitimer(ITIMER_REAL, &once, nullptr);  // the timer of alarm()
}

void LauncherHold::keep() noexcept {
  if (!armed) return;
  ::alarm(0);
  awaits_stop_file = false;
  stop_daemon();
}

void LauncherHold::release() noexcept {
  const pid_t process = daemon;
  if (process == 0 || !held.exchange(false)) return;
  ::kill(process, SIGCONT);
  tell_shell();
}

}  // namespace athanor
