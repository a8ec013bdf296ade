#include "launch/output_tee.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/log.h"
#include "launch/process.h"

namespace athanor::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// What waits for a terminal that stands still, in bytes; the log has the rest.
constexpr size_t kMostPending = 1 << 20;
constexpr size_t kPiece = 1 << 16;      // as much as a pipe holds
constexpr auto kForLateOutput = 200ms;  // from processes that programs have left

}  // namespace

OutputTee::OutputTee(Log log, int output, int errors, std::chrono::milliseconds patience)
    : patience_(patience), keeps_(log == Log::kLater) {
  open_terminal(output_, output);
  open_terminal(errors_, errors);
}

OutputTee::~OutputTee() {
  for (const Channel* channel : {&output_, &errors_})
    if (channel->owns_terminal) ::close(channel->terminal);
  if (log_ >= 0) ::close(log_);
}

// A description of its own may be made non-blocking: that of the terminal belongs to the shell as well.
void OutputTee::open_terminal(Channel& channel, int descriptor) {
  channel.terminal = descriptor;
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    channel.is_gone = true;
  } else if (S_ISREG(status.st_mode)) {
    channel.never_waits = true;
  } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
    const int own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) channel.terminal = own, channel.owns_terminal = channel.never_waits = true;
  }
  ::fcntl(channel.pipe.read, F_SETFL, O_NONBLOCK);
}

void OutputTee::are_started() {
  output_.pipe.close_write();
  errors_.pipe.close_write();
}

void OutputTee::log_to(const std::filesystem::path& file) {
  if (log_ >= 0) return;
  log_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_ < 0) log::warn("cannot make {}: {}; the output is shown only", file.string(), std::strerror(errno));
  const std::string kept = std::move(kept_);
  kept_.clear();
  keeps_ = false;
  add_to_log(kept.data(), kept.size());
}

void OutputTee::add_to_log(const char* data, size_t size) {
  if (keeps_) kept_.append(data, size);
  while (log_ >= 0 && size > 0) {
    const ssize_t written = ::write(log_, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      log::warn("the log of this attempt cannot be written: {}; the output is shown only", std::strerror(errno));
      ::close(log_);
      log_ = -1;
      return;
    }
    data += written, size -= static_cast<size_t>(written);
  }
}

// A terminal that takes its time slows the programs down. Only one that takes nothing loses lines, which the log has.
bool OutputTee::may_read(const Channel& channel) const {
  if (channel.pipe.read < 0) return false;
  if (ends_ || channel.skipped > 0 || channel.pending.size() < kMostPending) return true;
  const bool has_log = log_ >= 0 || keeps_;
  return has_log && Clock::now() - channel.taken > patience_;
}

// Returns false at the end of the stream, or if there is nothing.
bool OutputTee::read_from(Channel& channel) {
  char data[kPiece];
  const ssize_t got = ::read(channel.pipe.read, data, sizeof(data));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    channel.pipe.close_read();
    return false;
  }
  const auto size = static_cast<size_t>(got);
  last_output_ = Clock::now();
  add_to_log(data, size);
  if (channel.is_gone) return true;
  if (channel.pending.empty()) channel.taken = last_output_;
  if (channel.skipped > 0 || (channel.pending.size() >= kMostPending && !ends_))
    channel.skipped += size;
  else
    channel.pending.append(data, size);
  return true;
}

void OutputTee::show(Channel& channel) {
  const size_t most = channel.never_waits ? channel.pending.size() : std::min<size_t>(channel.pending.size(), PIPE_BUF);
  const ssize_t written = ::write(channel.terminal, channel.pending.data(), most);
  if (written > 0) channel.pending.erase(0, static_cast<size_t>(written)), channel.taken = Clock::now();
  if (written < 0 && errno != EAGAIN && errno != EINTR) channel.is_gone = true, channel.pending.clear();
  if (!channel.pending.empty() || channel.skipped == 0) return;
  channel.pending = fmt::format("\n[{} bytes are not shown here; the attempt's log has them]\n", channel.skipped);
  channel.skipped = 0;
}

// Returns whether anything was moved.
bool OutputTee::poll_once(int other, int wait_ms) {
  pollfd waited[5] = {{other, POLLIN, 0}};
  Channel* const channels[2] = {&output_, &errors_};
  for (int i = 0; i < 2; ++i) {
    waited[1 + 2 * i] = {may_read(*channels[i]) ? channels[i]->pipe.read : -1, POLLIN, 0};
    waited[2 + 2 * i] = {channels[i]->pending.empty() ? -1 : channels[i]->terminal, POLLOUT, 0};
  }
  if (::poll(waited, 5, wait_ms) <= 0) return false;
  bool moved = false;
  for (int i = 0; i < 2; ++i) {
    if (waited[1 + 2 * i].revents != 0) moved = read_from(*channels[i]) || moved;
    if (waited[2 + 2 * i].revents != 0) show(*channels[i]), moved = true;
  }
  return moved;
}

void OutputTee::move(int other, std::chrono::milliseconds at_most) {
  poll_once(other, static_cast<int>(at_most.count()));
}

// A program that has ended may have left a SIGCHLD that nobody has taken: that ends nothing.
void OutputTee::finish() {
  are_started();
  ends_ = true;
  const auto start = Clock::now();
  const bool has_log = log_ >= 0 || keeps_;
  while (output_.pipe.read >= 0 || errors_.pipe.read >= 0) {
    const bool moved = poll_once(-1, static_cast<int>(kForLateOutput.count()));
    if (!moved || Clock::now() - start > kPatience) break;
  }
  output_.pipe.close_read();
  errors_.pipe.close_read();
  while (!output_.pending.empty() || !errors_.pending.empty()) {
    if (WaitedSignals::has_come() || (has_log && Clock::now() - start > patience_)) break;
    poll_once(-1, 100);
  }
}

}  // namespace athanor::launch
