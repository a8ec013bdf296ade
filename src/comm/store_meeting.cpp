#include "comm/store_meeting.h"

#include <c10/util/Logging.h>
#include <poll.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "wire/tcp_socket.h"

namespace athanor::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kRetry{100}, kConnect{2000};
constexpr milliseconds kAnswerTime{30'000};                 // a store that listens answers 12,288 ranks within seconds
constexpr milliseconds kUnreachable{120'000};               // for a host that is up late; one that refuses a call is up
constexpr milliseconds kShortestNap{4}, kLongestNap{1000};  // at 12,288 ranks, as many questions a second

/// While it lives, libtorch prints neither warnings nor errors: each rank would print one for a host without a name, or
/// with a stack for an error that is reported here in one line. The level is the process's, and several threads may
/// have such objects: the last one that ends restores what the first one found, else one thread could restore the
/// quiet level that it had found.
class QuietLibtorch {
 public:
  QuietLibtorch() {
    const std::lock_guard lock(shared().mutex);
    if (shared().num_objects++ > 0) return;
    shared().before = FLAGS_caffe2_log_level;
    FLAGS_caffe2_log_level = std::max(shared().before, kFatal);
  }
  ~QuietLibtorch() {
    const std::lock_guard lock(shared().mutex);
    if (--shared().num_objects == 0) FLAGS_caffe2_log_level = shared().before;
  }
  QuietLibtorch(const QuietLibtorch&) = delete;
  QuietLibtorch& operator=(const QuietLibtorch&) = delete;

 private:
  static constexpr int kFatal = 3;
  struct Shared {
    std::mutex mutex;
    int num_objects = 0, before = 0;  // the level before the first object
  };
  static Shared& shared() {
    static auto& it = *new Shared;
    return it;
  }
};

class StoreMeeting : public MeetingPlace {
 public:
  StoreMeeting(c10::intrusive_ptr<c10d::Store> store, std::string name, std::string server)
      : store_(std::move(store)), name_(std::move(name)), server_(std::move(server)) {}

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
    fail<CommError>("{} has ended or is out of reach: the store at {}, which it serves, no longer answers ({})",
                    server_, name_, first_line(error.what_without_backtrace()));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string name_, server_;
};

// Returns 0 if something listens there, or the errno.
int try_connection(const SocketAddress& address) {
  const Descriptor socket = begin_connection(address);
  if (!socket) return errno;
  pollfd ready{socket.number(), POLLOUT, 0};
  return ::poll(&ready, 1, static_cast<int>(kConnect.count())) > 0 ? error_of(socket) : ETIMEDOUT;
}

std::string server_of(const MasterAddress& master) { return master.is_served ? "torchrun's agent" : "rank 0"; }

// Returns 0 once something listens there, or why nothing does when this is known to be so.
int try_for_a_while(const MasterAddress& master, const std::string& name, bool reports, milliseconds patience) {
  WaitReports due(kFirstReport);
  int error = 0;
  const auto begin = Clock::now();
  for (bool any_answer = false; Clock::now() - begin < (any_answer ? patience : std::min(patience, kUnreachable));) {
    for (const SocketAddress& address : master_addresses(master.host, master.port)) {
      error = try_connection(address);
      if (error == 0) return 0;
      any_answer |= error == ECONNREFUSED;
    }
    if (reports && due.now())
      log::info("waiting for {}, which serves the meeting place at {} ({}; {} s of at most {} s)", server_of(master),
                name, std::strerror(error), due.waited().count(), patience.count() / 1000);
    std::this_thread::sleep_for(kRetry);
  }
  return error;
}

// Libtorch's client would print a warning for each attempt, on each rank.
void wait_for_server(const MasterAddress& master, const std::string& name, int rank, milliseconds patience) {
  const auto begin = Clock::now();
  const int error = try_for_a_while(master, name, rank == (master.is_served ? 0 : 1), patience);
  if (error == 0) return;
  const auto waited = std::chrono::duration<double>(Clock::now() - begin).count();
  if (error == ECONNREFUSED) {
    fail<CommError>(
        "{} has not come within {:.1f} s: no process serves the meeting place at {} ({}); look whether it was started, "
        "and whether it runs on that host and has this MASTER_PORT. {}",
        server_of(master), waited, name, std::strerror(error), kHowLong);
  }
  fail<ConfigError>(
      "MASTER_ADDR ({}) was not reached at MASTER_PORT ({}) within {:.1f} s ({}); set it to the host of {}, by a name "
      "or number at which the hosts of all ranks reach it",
      master.host, master.port, waited, std::strerror(error), server_of(master));
}

// Rank 0 takes the port, and calls itself: what is wrong with the address is known here, before others wait for it.
Descriptor listen_as_rank_0(const MasterAddress& master) {
  const auto addresses = master_addresses(master.host, master.port);
  int error = 0;
  Descriptor listening = listen_at_port(master.port, error);
  if (!listening) {
    fail<ConfigError>(
        "MASTER_PORT ({}) cannot be used on {}, where rank 0 runs ({}): {}; set it to a free one from 1024 to 65535, "
        "the same for all ranks",
        master.port, host_name(), std::strerror(error),
        error == EADDRINUSE ? "another program, another job or another process with RANK=0 has it" : "it is refused");
  }
  pollfd called{listening.number(), POLLIN, 0};
  for (const SocketAddress& address : addresses) {
    if (try_connection(address) == 0 && ::poll(&called, 1, static_cast<int>(kConnect.count())) > 0) return listening;
  }
  fail<ConfigError>(
      "MASTER_ADDR ({}) does not lead to {}, where rank 0 runs; set it to a name or number of this host that all hosts "
      "reach, and RANK=0 for one process alone",
      master.host, host_name());
}

using Store = c10::intrusive_ptr<c10d::Store>;

// Libtorch waits without end for the answer of a program that is no store. Its thread is left behind then; the process
// ends.
Store join_store(const MasterAddress& master, c10d::TCPStoreOptions options, milliseconds limit) {
  options.timeout = limit;
  std::packaged_task<Store()> join(
      [host = master.host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  auto joined = join.get_future();
  std::thread(std::move(join)).detach();
  if (joined.wait_for(limit) == std::future_status::ready) return joined.get();
  throw std::runtime_error(fmt::format("no answer within {:.1f} s", static_cast<double>(limit.count()) / 1000));
}

[[noreturn]] void fail_to_join(const MasterAddress& master, const std::string& name, const std::string& reason) {
  const auto listens = [](const SocketAddress& address) { return try_connection(address) == 0; };
  if (!std::ranges::any_of(master_addresses(master.host, master.port), listens)) {
    fail<CommError>("{}, which served the meeting place at {}, has ended before the ranks had met ({})",
                    server_of(master), name, reason);
  }
  fail<ConfigError>(
      "what listens at {} is not the store of {} ({}): another program has this MASTER_PORT, or MASTER_ADDR is another "
      "host than that of {}",
      name, server_of(master), reason, server_of(master));
}

}  // namespace

std::unique_ptr<MeetingPlace> open_store_meeting(const MasterAddress& master, int rank, milliseconds patience) {
  const std::string name = fmt::format("{}:{}", master.host, master.port);
  c10d::TCPStoreOptions options;
  options.isServer = rank == 0 && !master.is_served;
  options.port = static_cast<uint16_t>(master.port);
  options.waitWorkers = false;  // the meeting does, and can name those that are missing
  options.timeout = patience;
  Descriptor listening;
  if (options.isServer) {
    listening = listen_as_rank_0(master);
  } else {
    wait_for_server(master, name, rank, patience);
  }
  const QuietLibtorch quiet;
  Store store;
  try {
    if (options.isServer) {
      options.masterListenFd = listening.release();  // the store closes it
      store = c10::make_intrusive<c10d::TCPStore>(master.host, options);
    } else {
      store = join_store(master, options, std::min(patience, kAnswerTime));
      store->setTimeout(patience);
    }
  } catch (const c10::Error& error) {
    if (!options.isServer) fail_to_join(master, name, first_line(error.what_without_backtrace()));
    fail<CommError>("the store at {} cannot be served: {}", name, first_line(error.what_without_backtrace()));
  } catch (const std::runtime_error& error) {
    fail_to_join(master, name, error.what());
  }
  auto own_part = c10::make_intrusive<c10d::PrefixStore>("athanor/" + master.attempt, std::move(store));
  return std::make_unique<StoreMeeting>(std::move(own_part), name, server_of(master));
}

}  // namespace athanor::comm
