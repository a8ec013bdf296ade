#include "comm/store_meeting.h"

#include <c10/util/Logging.h>
#include <poll.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "wire/tcp_socket.h"

namespace athanor::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kRetry{100}, kConnect{2000};
constexpr milliseconds kShortestNap{4}, kLongestNap{1000};  // at 12,288 ranks, as many questions a second

/// While it lives, libtorch prints no warnings: each rank would print one for a host without a name, or with a stack
/// for an error that is reported here in one line.
class QuietLibtorch {
 public:
  QuietLibtorch() : before_(FLAGS_caffe2_log_level) { FLAGS_caffe2_log_level = std::max(before_, kErrors); }
  ~QuietLibtorch() { FLAGS_caffe2_log_level = before_; }
  QuietLibtorch(const QuietLibtorch&) = delete;
  QuietLibtorch& operator=(const QuietLibtorch&) = delete;

 private:
  static constexpr int kErrors = 2;
  int before_;
};

class StoreMeeting : public MeetingPlace {
 public:
  StoreMeeting(c10::intrusive_ptr<c10d::Store> store, std::string name)
      : store_(std::move(store)), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  void set(const std::string& key, const std::string& text) override {
    ask([&] { store_->set(key, std::vector<uint8_t>(text.begin(), text.end())); });
  }

  std::optional<std::string> get(const std::string& key, milliseconds patience) override {
    // Asks again and again: the store's own wait would print a warning on each rank if the text does not come.
    milliseconds nap = kShortestNap;
    for (const auto begin = Clock::now();; nap = std::min(nap * 3 / 2, kLongestNap)) {
      bool is_there = false;
      ask([&] { is_there = store_->check({key}); });
      if (is_there) break;
      if (Clock::now() - begin >= patience) return {};
      std::this_thread::sleep_for(nap);
    }
    std::vector<uint8_t> text;
    ask([&] { text = store_->get(key); });
    return std::string(text.begin(), text.end());
  }

  int64_t count(const std::string& key) override {
    int64_t sum = 0;
    ask([&] { sum = store_->add(key, 1); });
    return sum;
  }

 private:
  template <class Request>
  void ask(const Request& request) {
    const QuietLibtorch quiet;
    try {
      request();
    } catch (const c10::Error& error) {
      fail_store(error);
    }
  }

  [[noreturn]] void fail_store(const c10::Error& error) const {
    fail<CommError>("the store at {} no longer answers, so that the process that serves it may have ended: {}", name_,
                    first_line(error.what_without_backtrace()));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string name_;
};

// Returns 0 if something listens there, or the errno.
int try_connection(const SocketAddress& address) {
  const Descriptor socket = begin_connection(address);
  if (!socket) return errno;
  pollfd ready{socket.number(), POLLOUT, 0};
  return ::poll(&ready, 1, static_cast<int>(kConnect.count())) > 0 ? error_of(socket) : ETIMEDOUT;
}

// Libtorch's client would print a warning for each attempt, on each rank.
void wait_for_server(const MasterAddress& master, const std::string& name, milliseconds patience) {
  int error = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < patience; std::this_thread::sleep_for(kRetry)) {
    const auto addresses = addresses_of(master.host, master.port);
    if (addresses.empty()) fail<CommError>("MASTER_ADDR ({}) is not a host that this machine knows", master.host);
    for (const SocketAddress& address : addresses) {
      error = try_connection(address);
      if (error == 0) return;
    }
  }
  fail<CommError>(
      "no process serves the meeting place at {} after {} s ({}); {} serves it, so that MASTER_ADDR and MASTER_PORT "
      "have "
      "to be where this runs, and the hosts of all ranks have to reach it",
      name, patience.count() / 1000, std::strerror(error), master.is_served ? "torchrun's agent" : "rank 0");
}

}  // namespace

std::unique_ptr<MeetingPlace> open_store_meeting(const MasterAddress& master, int rank, milliseconds patience) {
  const std::string name = fmt::format("{}:{}", master.host, master.port);
  c10d::TCPStoreOptions options;
  options.isServer = rank == 0 && !master.is_served;
  options.port = static_cast<uint16_t>(master.port);
  options.waitWorkers = false;  // the meeting does, and can name those that are missing
  options.timeout = patience;
  if (!options.isServer) wait_for_server(master, name, patience);
  const QuietLibtorch quiet;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(master.host, options);
    auto own_part = c10::make_intrusive<c10d::PrefixStore>("athanor/" + master.attempt, std::move(store));
    return std::make_unique<StoreMeeting>(std::move(own_part), name);
  } catch (const c10::Error& error) {
    fail<CommError>("the store at {} cannot be {}: {}; MASTER_PORT has to be free on the host of rank 0", name,
                    options.isServer ? "served" : "joined", first_line(error.what_without_backtrace()));
  }
}

}  // namespace athanor::comm
