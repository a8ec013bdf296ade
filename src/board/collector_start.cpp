#include "board/collector_start.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.h"
#include "board/locked_file.h"

namespace athanor::board {
namespace {

// The actions between fork and exec, which libc does without a copy of this process's memory.
class SpawnSettings {
 public:
  explicit SpawnSettings(int lock) {
    ::posix_spawn_file_actions_init(&files_);
    for (int stream = 0; stream <= 2; ++stream)
      ::posix_spawn_file_actions_addopen(&files_, stream, "/dev/null", O_RDWR, 0);
    ::posix_spawn_file_actions_adddup2(&files_, lock, kLockDescriptor);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int spawn(pid_t& child, const std::string& program, char** arguments, char** environment) const {
    return ::posix_spawn(&child, program.c_str(), &files_, &attributes_, arguments, environment);
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

// The process that was started leaves at once, when the collector runs as its child (collector.cpp).
int wait_for_process(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 0;  // the program ignores its children
  return status;
}

}  // namespace

void write_collector(int lock, pid_t collector) {
  const std::string text = std::to_string(collector) + "\n";
  [[maybe_unused]] const bool done =
      ::ftruncate(lock, 0) == 0 && ::pwrite(lock, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

pid_t read_collector(const Place& place) {
  std::ifstream file(place.lock);
  pid_t collector = 0;
  file >> collector;
  return collector;
}

void start_collector(const std::filesystem::path& program, const Place& place) {
  const LockedFile own = LockedFile::try_make(place.lock);
  if (own.descriptor() < 0) return;
  // Above all descriptors that the settings open.
  const int lock = ::fcntl(own.descriptor(), F_DUPFD_CLOEXEC, kLockDescriptor + 1);
  if (lock < 0) fail_errno("cannot duplicate the descriptor of", place.lock.string());
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  std::string command = kCollectorCommand, name = program.string(), memory = place.memory.string();
  std::string variable = std::string("LD_LIBRARY_PATH=") + (libraries ? libraries : "");
  char* arguments[] = {name.data(), command.data(), memory.data(), nullptr};
  char* environment[] = {libraries ? variable.data() : nullptr, nullptr};
  pid_t child = 0;
  const int failed = SpawnSettings(lock).spawn(child, name, arguments, environment);
  ::close(lock);
  if ((errno = failed) != 0) fail_errno("cannot start", name);
  if (const int status = wait_for_process(child))
    fail<Error>("{} {} ended with status {}", name, kCollectorCommand, status);
}

}  // namespace athanor::board
