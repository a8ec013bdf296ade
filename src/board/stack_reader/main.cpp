// athanor-stacks PID prints the stacks of all threads of a process, innermost function first.
//
// It stops each thread for as long as it reads it, by PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, so that if
// this program is killed the threads continue, and a process that a signal has stopped stays stopped. It is a program
// by itself, since reading memory that may be damaged must not be able to end the collector.
//
// Exit codes: 0; 2 for a wrong call; 3 if the system does not let it trace the process (Yama, a container, another
// user).

#include <cxxabi.h>
#include <dirent.h>
#include <elfutils/libdwfl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kMostFrames = 64;
constexpr std::chrono::milliseconds kPatience{1000};  // for a thread to stop; one in the kernel may not

enum class Stop { kStopped, kInKernel, kGone };

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(("/proc/" + std::to_string(process) + "/task").c_str()),
                                                   &::closedir);
  if (!folder) return found;
  while (const dirent* entry = ::readdir(folder.get()))
    if (const int thread = std::atoi(entry->d_name)) found.push_back(thread);
  return found;
}

Stop stop(pid_t thread) {
  if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) return Stop::kGone;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (std::chrono::steady_clock::now() < end) {
    const pid_t found = ::waitpid(thread, &status, __WALL | WNOHANG);
    if (found == thread) return WIFSTOPPED(status) ? Stop::kStopped : Stop::kGone;
    if (found < 0) return Stop::kGone;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Stop::kInKernel;
}

// Stops all threads, also those that others begin meanwhile. Returns false if the system refuses it.
bool stop_all(pid_t process, std::map<pid_t, Stop>& stopped) {
  for (bool found_new = true; found_new;) {
    found_new = false;
    for (const pid_t thread : threads_of(process)) {
      if (stopped.contains(thread)) continue;
      found_new = true;
      if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
        if (errno == EPERM || errno == EACCES) return false;
        stopped[thread] = Stop::kGone;
      } else {
        stopped[thread] = stop(thread);
      }
    }
  }
  return true;
}

std::string readable(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : name;
}

int add_frame(Dwfl_Frame* frame, void* lines) {
  auto& out = *static_cast<std::vector<std::string>*>(lines);
  Dwarf_Addr address = 0;
  bool is_exact = false;
  if (!::dwfl_frame_pc(frame, &address, &is_exact) || out.size() == kMostFrames) return DWARF_CB_ABORT;
  if (!is_exact) --address;  // it is where the call returns to
  Dwfl_Module* module = ::dwfl_addrmodule(::dwfl_thread_dwfl(::dwfl_frame_thread(frame)), address);
  const char* name = module ? ::dwfl_module_addrname(module, address) : nullptr;
  const char* file =
      module ? ::dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) : nullptr;
  const char* slash = file ? std::strrchr(file, '/') : nullptr;
  out.push_back((name ? readable(name) : "?") + " (" + (slash ? slash + 1 : file ? file : "?") + ")");
  return DWARF_CB_OK;
}

int no_debug_info(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
  return -1;  // names of functions are in the libraries; a search might ask servers
}

class Unwinder {
 public:
  explicit Unwinder(pid_t process) : dwfl_(::dwfl_begin(&kCallbacks), &::dwfl_end) {
    works_ = dwfl_ && ::dwfl_linux_proc_report(dwfl_.get(), process) == 0 &&
             ::dwfl_report_end(dwfl_.get(), nullptr, nullptr) == 0 &&
             ::dwfl_linux_proc_attach(dwfl_.get(), process, /*assume_ptrace_stopped=*/true) == 0;
  }
  std::vector<std::string> frames(pid_t thread) {
    std::vector<std::string> lines;
    if (works_) ::dwfl_getthread_frames(dwfl_.get(), thread, &add_frame, &lines);
    if (lines.empty()) lines.push_back(std::string("no frames: ") + ::dwfl_errmsg(-1));
    return lines;
  }

 private:
  static constexpr Dwfl_Callbacks kCallbacks{::dwfl_linux_proc_find_elf, &no_debug_info, nullptr, nullptr};
  std::unique_ptr<Dwfl, void (*)(Dwfl*)> dwfl_;
  bool works_ = false;
};

// A stub that jumps into another library has no information about its caller; the function that it jumps to has.
bool ends_in_stub(const std::vector<std::string>& lines) {
  return lines.size() == 1 && lines[0].find("$plt") != std::string::npos;
}

// Lets a thread compute one instruction. Returns the signal that came instead of the step's end; 0: none.
int step(pid_t thread) {
  int status = 0;
  if (::ptrace(PTRACE_SINGLESTEP, thread, nullptr, nullptr) != 0 || ::waitpid(thread, &status, __WALL) != thread)
    return 0;
  return WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
}

// Returns the stack of a thread, which leaves a stub for it. `signal` becomes what the thread must get when it goes on.
std::vector<std::string> whole_stack(Unwinder& unwinder, pid_t thread, int& signal) {
  constexpr int kMostSteps = 8;
  std::vector<std::string> lines = unwinder.frames(thread);
  for (int i = 0; i < kMostSteps && ends_in_stub(lines) && signal == 0; ++i) {
    signal = step(thread);
    lines = unwinder.frames(thread);
  }
  return lines;
}

// Threads with equal stacks are printed once: most are workers that wait. Returns signals that threads must get when
// they go on.
std::map<pid_t, int> print(pid_t process, const std::map<pid_t, Stop>& stopped) {
  Unwinder unwinder(process);
  std::map<pid_t, int> signals;
  std::map<std::vector<std::string>, std::vector<pid_t>> by_stack;
  std::vector<std::vector<std::string>> order;
  for (const auto& [thread, how] : stopped) {  // the first thread is that of the process
    if (how == Stop::kGone) continue;
    const std::string task = "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread);
    std::vector<std::string> lines{"in the kernel, which does not let it go: " + first_line(task + "/wchan")};
    if (how == Stop::kStopped) lines = whole_stack(unwinder, thread, signals[thread]);
    lines.insert(lines.begin(), first_line(task + "/comm"));
    if (by_stack[lines].empty()) order.push_back(lines);
    by_stack[lines].push_back(thread);
  }
  for (const auto& lines : order) {
    const auto& threads = by_stack[lines];
    std::printf("thread %d (%s)", threads[0], lines[0].c_str());
    if (threads.size() > 1) std::printf(" and %zu like it", threads.size() - 1);
    std::printf("\n");
    for (size_t i = 1; i < lines.size(); ++i) std::printf("  #%zu %s\n", i - 1, lines[i].c_str());
  }
  return signals;
}

}  // namespace

int main(int count, char** words) {
  const int process = count == 2 ? std::atoi(words[1]) : 0;
  if (process <= 0) {
    std::fprintf(stderr, "usage: athanor-stacks PID\n");
    return 2;
  }
  std::map<pid_t, Stop> stopped;
  const bool may_trace = stop_all(process, stopped);
  std::map<pid_t, int> signals;
  if (may_trace) signals = print(process, stopped);
  for (const auto& [thread, how] : stopped)
    if (how == Stop::kStopped) ::ptrace(PTRACE_DETACH, thread, nullptr, static_cast<intptr_t>(signals[thread]));
  if (may_trace) return 0;
  std::fprintf(stderr, "athanor-stacks: the system does not let it trace process %d\n", process);
  return 3;
}
