#include "board/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace athanor::board {
namespace {

struct Stat {
  char state = 'X';
  uint64_t start = 0;
};

// The name of the program is in parentheses and may contain any character, so the fields are counted from its end:
// there follow the state (field 3) and, 19 fields later, the start (field 22).
Stat read_stat(pid_t process) {
  char path[32], text[1024];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(process));
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t num_bytes = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  if (num_bytes <= 0) return {};
  text[num_bytes] = '\0';
  const char* at = std::strrchr(text, ')');
  if (!at || at[1] != ' ') return {};
  Stat stat{at[2], 0};
  at += 2;
  for (int field = 3; field < 22 && at; ++field) at = std::strchr(at + 1, ' ');
  if (at) stat.start = std::strtoull(at + 1, nullptr, 10);
  return stat;
}

}  // namespace

uint64_t start_of_process(pid_t process) { return read_stat(process).start; }

ProcessState state_of_process(pid_t process, uint64_t start) {
  const Stat stat = read_stat(process);
  if (stat.start != start || stat.start == 0 || stat.state == 'Z' || stat.state == 'X') return ProcessState::kGone;
  return stat.state == 'T' || stat.state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace athanor::board
