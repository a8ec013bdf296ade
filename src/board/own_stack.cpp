#include "board/own_stack.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

namespace athanor::board {
namespace fs = std::filesystem;
namespace {

constexpr int kSignal = SIGURG;
constexpr char kEnd[] = "end\n";
constexpr int kMostFrames = 64, kHandlerFrames = 2;  // the handler and what the kernel calls it through

std::array<char, 512> file_of_handler{};

void write_own_stack(int) {
  const int error = errno;
  const int file = ::open(file_of_handler.data(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file >= 0) {
    std::array<void*, kMostFrames> frames{};
    const int count = ::backtrace(frames.data(), kMostFrames);
    if (count > kHandlerFrames) ::backtrace_symbols_fd(frames.data() + kHandlerFrames, count - kHandlerFrames, file);
    [[maybe_unused]] const ssize_t written = ::write(file, kEnd, sizeof(kEnd) - 1);
    ::close(file);
  }
  errno = error;
}

// True if the process would run a handler for the signal: /proc/PID/status, SigCgt.
bool handles_signal(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigCgt:", 0) == 0)
      return ((std::strtoull(line.c_str() + 7, nullptr, 16) >> (kSignal - 1)) & 1) != 0;
  }
  return false;
}

// "/lib/libx.so(name+0x12)[0x7f..]" becomes "name (libx.so)".
std::string readable_frame(const std::string& line) {
  const size_t open = line.find('('), plus = line.find_first_of("+)", open == std::string::npos ? 0 : open);
  if (open == std::string::npos || plus == std::string::npos) return line;
  std::string name = line.substr(open + 1, plus - open - 1);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                     &std::free);
  if (status == 0) name = plain.get();
  return (name.empty() ? "?" : name) + " (" + fs::path(line.substr(0, open)).filename().string() + ")";
}

std::optional<std::string> read_stack(const fs::path& file) {
  struct stat found {};
  if (::lstat(file.c_str(), &found) != 0 || found.st_uid != ::geteuid() || !S_ISREG(found.st_mode)) return {};
  std::ifstream in(file);
  std::string text, line;
  for (int frame = 0; std::getline(in, line); ++frame) {
    if (line + "\n" == kEnd) return text;
    text += "  #" + std::to_string(frame) + " " + readable_frame(line) + "\n";
  }
  return {};  // it is still at it
}

}  // namespace

fs::path own_stack_file(const fs::path& memory, pid_t process) {
  return memory.string() + ".stack-" + std::to_string(process);
}

void write_own_stack_when_asked(const fs::path& memory) {
  const std::string file = own_stack_file(memory, ::getpid()).string();
  struct sigaction before {};
  if (file.size() >= file_of_handler.size() || ::sigaction(kSignal, nullptr, &before) != 0 ||
      (before.sa_handler != SIG_DFL && before.sa_handler != &write_own_stack))
    return;
  std::memcpy(file_of_handler.data(), file.c_str(), file.size() + 1);
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // loads what a later call, in the handler, must not load
  struct sigaction action {};
  action.sa_handler = &write_own_stack;
  action.sa_flags = SA_RESTART;
  ::sigaction(kSignal, &action, nullptr);
}

std::optional<std::string> ask_for_own_stack(const fs::path& memory, pid_t process,
                                             std::chrono::milliseconds patience) {
  const fs::path file = own_stack_file(memory, process);
  ::unlink(file.c_str());
  if (!handles_signal(process)) return {};
  // To the first thread, which trains, and not to the one that the kernel would choose.
  if (::syscall(SYS_tgkill, process, process, kSignal) != 0) return {};
  const auto end = std::chrono::steady_clock::now() + patience;
  std::optional<std::string> stack;
  while (!(stack = read_stack(file)) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::unlink(file.c_str());
  return stack;
}

}  // namespace athanor::board
