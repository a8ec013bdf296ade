#include "verify/reference_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/launched.h"

namespace athanor::inline verify {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> environment_outside_jobs(char** environment) {
  std::vector<std::string> kept;
  for (; *environment; ++environment) {
    const std::string_view variable = *environment;
    const bool of_launcher =
        std::ranges::any_of(launcher_prefixes(), [&](const char* prefix) { return variable.starts_with(prefix); });
    if (!of_launcher && !variable.starts_with("ATHANOR_FAULT=")) kept.emplace_back(variable);
  }
  return kept;
}

ReferenceProcess::ReferenceProcess(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"athanor"}, environment = environment_outside_jobs(environ);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const int error = ::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, pointers_to(words).data(),
                                  pointers_to(environment).data());
  if (error != 0) {
    pid_ = -1;
    errno = error;
    fail_errno("cannot start the process of one rank", "/proc/self/exe");
  }
}

ReferenceProcess::~ReferenceProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

// Returns the time of all its threads; 0 if it has ended.
double ReferenceProcess::cpu_seconds() const {
  clockid_t clock;
  timespec time{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void ReferenceProcess::wait(const std::function<void()>& on_work) {
  int status = 0;
  pid_t ended;
  double worked = 0;
  while ((ended = ::waitpid(pid_, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
    const double now = cpu_seconds();
    if (now > worked) on_work();
    worked = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  pid_ = -1;
  if (ended < 0) fail_errno("cannot wait for", "the process of one rank");
  if (WIFSIGNALED(status)) fail<Error>("the process of one rank was ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    fail<Error>("the process of one rank ended with {}; see its lines", WEXITSTATUS(status));
}

}  // namespace athanor::inline verify
