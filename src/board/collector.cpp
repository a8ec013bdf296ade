#include "board/collector.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/wall_clock.h"
#include "board/board.h"
#include "board/locked_file.h"
#include "board/place.h"
#include "board/process_state.h"
#include "board/report_socket.h"
#include "board/snapshot.h"
#include "board/stack_request.h"
#include "board/stacks.h"

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

namespace fs = std::filesystem;
namespace {

constexpr double kFirstReport_s = 1;  // after the checks of the start have passed
constexpr int kLook_ms = 1000;        // how often the table is read for new processes and those that have gone
constexpr double kFilesPerSecond =
    100;  // written, and folders listed, by all nodes together: a metadata server does a hundred times as many

// A process that a rank watches for must keep none of the rank's descriptors: a pipe of the launcher would stay open.
void close_others() {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, kLockDescriptor + 1, ~0U, 0) == 0) return;
#endif
  const int limit = static_cast<int>(::sysconf(_SC_OPEN_MAX));
  for (int descriptor = kLockDescriptor + 1; descriptor < std::max(limit, 1024); ++descriptor) ::close(descriptor);
}

void ignore_signals() {
  // A scheduler that ends a job sends them to every process. The collector ends after those that it shows.
  for (int number : {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(number, SIG_IGN);
  ::signal(SIGCHLD, SIG_IGN);  // the kernel clears away the children that read stacks
}

int open_process(pid_t process) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
#else
  return -1;
#endif
}

// One of the processes that have a record. Its descriptor becomes readable when it ends; kernels before 5.3 have none.
struct Watched {
  uint64_t start = 0;
  int descriptor = -1;
  std::optional<double> gone;  // when it was found gone, in seconds since 1970
};

class Collector {
 public:
  Collector(Place place, const SharedMemory& memory)
      : place_(std::move(place)), memory_(memory), run_dir_(memory.header().run_dir),
        requests_(run_dir_, memory.header().node) {
    try {
      socket_.emplace(place_.socket);
      stacks_.emplace(place_.stacks);
    } catch (const Error&) {
      // The files remain: they need no socket, whose path may be too long.
    }
  }

  void run() {
    do {
      watch();
      if (is_due()) write_report();
      if (is_look_due()) answer_requests();
      wait();
    } while (!has_ended());
  }

 private:
  // Finds processes that are new in the table, and those that have gone.
  void watch() {
    num_live_ = 0;
    std::set<uint32_t> live;
    for_each_live(memory_, [&](uint32_t slot, const Record& record) {
      ++num_live_;
      live.insert(slot);
      const Identity& identity = record.identity;
      Watched& watched = watched_[slot];
      if (watched.start != identity.process_start) {
        forget(watched);
        watched = {identity.process_start, open_process(identity.process), {}};
      }
      if (!watched.gone && state_of_process(identity.process, identity.process_start) == ProcessState::kGone)
        watched.gone = unix_time_s();
      if (watched.gone) forget(watched);
      if (identity.attempt > 0) began_.try_emplace(identity.attempt, unix_time_s());
      job_ranks_ = std::max(job_ranks_, identity.job_ranks);
    });
    for (auto& [slot, watched] : watched_)
      if (!live.contains(slot)) forget(watched);
  }

  // The descriptor of a process that has ended would be readable for ever.
  static void forget(Watched& watched) {
    if (watched.descriptor >= 0) ::close(std::exchange(watched.descriptor, -1));
  }

  NodeReport report() const {
    NodeReport now = snapshot(memory_);
    now.interval_s = interval_s();
    for (RankReport& rank : now.ranks)
      for (const auto& [slot, watched] : watched_)
        if (rank.state == "gone" && watched.gone && memory_.record(slot).identity.process == rank.process)
          rank.gone_s = now.written - *watched.gone;
    return now;
  }

  double interval_s() const { return report_interval_s(job_ranks_, num_live_); }

  bool is_due() const {
    if (began_.empty()) return false;  // the folder may not change yet
    if (num_live_ == 0) return false;  // all have ended in order: the history of the run tells of them
    const double next = written_ ? *written_ + interval_s() : began_.begin()->second + kFirstReport_s;
    return unix_time_s() >= next;
  }

  // The file system may be full or gone: the next report may succeed.
  void write_report() {
    std::error_code failed;
    if (!fs::is_directory(run_dir_, failed)) return;  // not there yet, or removed: it is not made here
    written_ = unix_time_s();
    fs::create_directory(reports_of(run_dir_), failed);
    replace_unsynced(reports_of(run_dir_) / (std::string(memory_.header().node) + ".json"),
                     to_json(report()).dump() + "\n");
  }

  bool is_look_due() const {
    if (!written_) return false;  // who asks has read a report of this node
    return !looked_ || unix_time_s() >= *looked_ + look_interval_s(job_ranks_, num_live_);
  }

  void answer_requests() {
    looked_ = unix_time_s();
    for (const FoundRequest& request : requests_.look(*looked_))
      in_child([&] { answer_request(request, memory_, place_.memory); });
  }

  // Until something has to be looked at; answers those who ask.
  void wait() {
    std::vector<pollfd> waited{{socket_ ? socket_->descriptor() : -1, POLLIN, 0},
                               {stacks_ ? stacks_->descriptor() : -1, POLLIN, 0}};
    for (const auto& [slot, watched] : watched_)
      if (watched.descriptor >= 0) waited.push_back({watched.descriptor, POLLIN, 0});
    ::poll(waited.data(), waited.size(), kLook_ms);
    if (waited[0].revents & POLLIN) socket_->answer([&] { return to_json(report()).dump() + "\n"; });
    if (waited[1].revents & POLLIN) answer_with_stacks();
  }

  // What reads stacks, since a process may take seconds to stop, or never does.
  template <class Work>
  static void in_child(Work work) {
    if (::fork() != 0) return;
    ::close(kLockDescriptor);
    ::signal(SIGCHLD, SIG_DFL);
    work();
    ::_exit(0);
  }

  void answer_with_stacks() const {
    const int peer = stacks_->take();
    if (peer < 0) return;
    in_child([&] {
      std::istringstream request(read_request(peer));
      const std::set<int> ranks(std::istream_iterator<int>(request), {});
      std::vector<RankStack> stacks;
      read_stacks(
          memory_, place_.memory, [&](const Identity& identity) { return ranks.contains(identity.rank); },
          [&](const RankStack& stack) { stacks.push_back(stack); });
      send_answer(peer, stacks_to_json(stacks));
    });
    ::close(peer);
  }

  // True when no process with a record is left. A rank that starts has the lock: it either finds the files gone and
  // makes others, or has its record in the table by now.
  bool has_ended() {
    if (has_processes(memory_)) return false;
    const LockedFile file = LockedFile::open(place_.memory);
    if (file.descriptor() >= 0 && has_processes(memory_)) return false;
    watch();
    // Those that ended in order have told the history of the run; of others the last record is all there is.
    if (!began_.empty() && num_live_ > 0) write_report();
    if (file.descriptor() < 0) return true;
    for (const fs::path& each : {place_.socket, place_.stacks, place_.lock, place_.memory}) ::unlink(each.c_str());
    return true;
  }

  Place place_;
  const SharedMemory& memory_;
  fs::path run_dir_;
  std::optional<ReportSocket> socket_, stacks_;  // none if they could not be made
  std::map<uint32_t, Watched> watched_;          // by slot
  std::map<int64_t, double> began_;              // when each attempt was first seen
  std::optional<double> written_, looked_;       // when the last report was written, and requests were looked for
  RequestWatch requests_;
  int num_live_ = 0, job_ranks_ = 0;
};

}  // namespace

double look_interval_s(int job_ranks, int node_ranks) {
  const double num_nodes = static_cast<double>(job_ranks) / std::max(1, node_ranks);
  return std::max(1.0, num_nodes / kFilesPerSecond);
}

double report_interval_s(int job_ranks, int node_ranks) {
  return std::max(5.0, look_interval_s(job_ranks, node_ranks));
}

int run_collector(const fs::path& memory) {
  close_others();
  ignore_signals();
  ::setsid();
  if (::chdir("/") != 0) return 1;
  const pid_t child = ::fork();
  if (child > 0) write_collector(kLockDescriptor, child);
  if (child != 0) return child > 0 ? 0 : 1;  // the rank waits for this process only
  try {
    std::optional<SharedMemory> board;
    {
      const int file = ::open(memory.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
      if (file < 0) return 1;
      board.emplace(file, memory, nullptr);
      ::close(file);
    }
    Collector(place_at(memory, board->header().run), *board).run();
  } catch (const std::exception&) {
    // No terminal is left to report it to. Ranks do not notice; `athanor status` reports the file's age.
  }
  ::_exit(0);
}

}  // namespace athanor::board
