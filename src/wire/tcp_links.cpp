#include "wire/tcp_links.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "base/error.h"

namespace athanor::comm {
namespace {

constexpr int kMaxEvents = 64;
constexpr std::chrono::seconds kSilence{60};  // for a caller that sends nothing, and is no rank of this job
constexpr std::chrono::seconds kLook{5};

}  // namespace

/// A socket on which a rank calls another, from its first step to its end.
struct TcpLinks::Call : FrameReader::Receiver {
  enum class State {
    kConnecting,  ///< the kernel connects
    kAsked,       ///< this rank has sent its Hello
    kUnknown,     ///< someone calls this rank, and has not sent a whole Hello
    kOpen,
  };

  Call(TcpLinks& its_owner, Descriptor its_socket) : owner(its_owner), socket(std::move(its_socket)) {}
  char* begin(const Frame& frame) override { return owner.observer_.begin(peer, frame); }
  void end(const Frame& frame) override { owner.observer_.end(peer, frame); }

  /// Reads into `greeting` up to `size` bytes of it. @return 1 when they are complete, 0 before, −1 if they cannot
  /// come.
  int hear(size_t size) {
    const ssize_t got = ::read(socket.number(), greeting.data() + heard, size - heard);
    if (got > 0) heard += static_cast<size_t>(got);
    if (heard == size) return 1;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)) ? 0 : -1;
  }

  TcpLinks& owner;
  Descriptor socket;
  State state = State::kUnknown;
  int peer = -1;
  Clock::time_point since = Clock::now();
  std::array<char, sizeof(Hello)> greeting{};
  size_t heard = 0;
  FrameReader reader;
  bool writing = false;  ///< epoll reports when the socket takes more
  SocketAddress address;
};

TcpLinks::TcpLinks(std::shared_ptr<MeetingPlace> place, const std::string& master, int rank, int size,
                   const std::string& host, std::chrono::milliseconds patience, Observer& observer)
    : place_(std::move(place)), master_(master), host_(host), rank_(rank), size_(size), observer_(observer),
      own_(address_towards(master, 0)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  raise_descriptor_limit();
  listening_ = listen_at(own_, /*everywhere=*/!means_this_machine(master));
  own_.set_port(port_of(listening_));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listening_.number();
  if (!epoll_ || ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, listening_.number(), &event) != 0) {
    fail<CommError>("cannot watch sockets: {}", std::strerror(errno));
  }
  job_ = meet(*place_, {rank, size, host, fmt::format("{} {} {}", own_.host(), own_.port(), host)}, patience);
}

TcpLinks::~TcpLinks() = default;

// A rank that reaches the host of the meeting place by the loopback device is on that host. Ranks of other hosts reach
// it at the host's address as they know it.
SocketAddress TcpLinks::address_of(int peer) {
  std::istringstream text(text_of(*place_, peer));
  std::string host;
  int port = 0;
  text >> host >> port >> peers_[peer].host;
  auto addresses = addresses_of(host, port);
  if (!addresses.empty() && addresses[0].is_loopback() && !own_.is_loopback()) addresses = addresses_of(master_, port);
  if (addresses.empty()) throw std::runtime_error(fmt::format("{} has no usable address: {}", name_of(peer), host));
  const auto reachable = [&](const SocketAddress& one) { return one.storage.ss_family == own_.storage.ss_family; };
  const auto best = std::find_if(addresses.begin(), addresses.end(), reachable);
  return best == addresses.end() ? addresses[0] : *best;
}

std::string TcpLinks::name_of(int peer) {
  const std::string& host = peers_[peer].host;
  return host.empty() ? fmt::format("rank {}", peer) : fmt::format("rank {} ({})", peer, host);
}

void TcpLinks::connect(int peer) {
  Peer& to = peers_[peer];
  if (to.open || to.begun || to.calls || to.is_gone) return;
  const SocketAddress address = address_of(peer);
  Descriptor socket = begin_connection(address);
  if (!socket) return lose(peer, fmt::format("cannot be reached at {}: {}", address.text(), std::strerror(errno)));
  Call& call = new_call(std::move(socket));
  call.state = Call::State::kConnecting;
  call.peer = peer;
  call.address = address;
  to.begun = &call;
  watch(call, true);
}

TcpLinks::Call& TcpLinks::new_call(Descriptor socket) {
  auto call = std::make_unique<Call>(*this, std::move(socket));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = call->socket.number();
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, call->socket.number(), &event);
  auto& place = calls_[call->socket.number()];
  place = std::move(call);
  return *place;
}

void TcpLinks::drop(Call& call) {
  if (call.peer >= 0) {
    Peer& peer = peers_[call.peer];
    if (peer.open == &call) peer.open = nullptr;
    if (peer.begun == &call) peer.begun = nullptr;
  }
  calls_.erase(call.socket.number());  // closing the descriptor ends epoll's interest
}

void TcpLinks::watch(Call& call, bool writing) {
  if (call.writing == writing) return;
  call.writing = writing;
  epoll_event event{};
  event.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = call.socket.number();
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, call.socket.number(), &event);
}

void TcpLinks::move(int wait_ms) {
  std::array<epoll_event, kMaxEvents> events;
  const int count = ::epoll_wait(epoll_.number(), events.data(), kMaxEvents, left_.empty() ? wait_ms : 0);
  has_moved_ = count > 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.fd == listening_.number()) {
      accept_all();
    } else if (const auto found = calls_.find(event.data.fd); found != calls_.end()) {
      serve(*found->second, event.events);  // if its descriptor was given to a new call just now, nothing is there yet
    }
  }
  if (const auto now = Clock::now(); now - last_look_ > kLook) {
    last_look_ = now;
    drop_silent_calls();
  }
}

void TcpLinks::accept_all() {
  while (Descriptor socket = accept_from(listening_)) new_call(std::move(socket));
}

void TcpLinks::drop_silent_calls() {
  std::vector<Call*> silent;
  for (const auto& [descriptor, call] : calls_) {
    if (call->state == Call::State::kUnknown && Clock::now() - call->since > kSilence) silent.push_back(call.get());
  }
  for (Call* call : silent) drop(*call);
}

void TcpLinks::serve(Call& call, uint32_t events) {
  switch (call.state) {
    case Call::State::kConnecting: return say_hello(call);
    case Call::State::kAsked: return hear_welcome(call);
    case Call::State::kUnknown: return hear_hello(call);
    case Call::State::kOpen:
      if (events & EPOLLOUT) write(peers_[call.peer]);
      if (events & ~static_cast<uint32_t>(EPOLLOUT)) read(call);
  }
}

void TcpLinks::say_hello(Call& call) {
  const int peer = call.peer;
  Hello hello;
  hello.sender = rank_;
  hello.receiver = peer;
  hello.size = size_;
  hello.job = job_;
  host_.copy(hello.host.data(), hello.host.size() - 1);
  int error = error_of(call.socket);
  // An empty socket takes these few bytes at once.
  if (error == 0 && ::send(call.socket.number(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) error = errno;
  if (error == EAGAIN || error == ENOTCONN) return;  // not yet
  if (error != 0) {
    const std::string address = call.address.text();
    drop(call);
    return lose(peer, fmt::format("cannot be reached at {}: {}", address, std::strerror(error)));
  }
  call.state = Call::State::kAsked;
  watch(call, false);
}

void TcpLinks::hear_welcome(Call& call) {
  const int heard = call.hear(sizeof(Welcome)), peer = call.peer;
  if (heard == 0) return;
  Welcome welcome;
  std::memcpy(&welcome, call.greeting.data(), sizeof welcome);
  const bool understood = heard > 0 && welcome.magic == Hello::kMagic;
  if (understood && welcome.verdict == Welcome::Verdict::kWelcome) return open(peer, call);
  drop(call);
  if (!understood) return lose(peer, "has ended, or is another program");
  if (welcome.verdict == Welcome::Verdict::kTaken) peers_[peer].calls = true;
  if (welcome.verdict == Welcome::Verdict::kOtherVersion) {
    lose(peer,
         fmt::format("runs another version of this program (protocol {}, here {})", welcome.version, Hello::kVersion));
  }
}

bool TcpLinks::is_for_this_rank(const Hello& hello) const {
  return hello.receiver == rank_ && hello.size == size_ && hello.sender >= 0 && hello.sender < size_ &&
         hello.sender != rank_;
}

void TcpLinks::hear_hello(Call& call) {
  const int heard = call.hear(sizeof(Hello));
  if (heard == 0) return;
  Hello hello;
  std::memcpy(&hello, call.greeting.data(), sizeof hello);
  if (heard < 0 || hello.magic != Hello::kMagic || hello.job != job_) return drop(call);
  if (hello.version != Hello::kVersion) return answer(call, Welcome::Verdict::kOtherVersion);
  if (!is_for_this_rank(hello)) return drop(call);
  Peer& peer = peers_[hello.sender];
  // Both call: the lower rank's call is used, and the higher rank does not wait for its own.
  if (peer.open || peer.is_gone || (peer.begun && rank_ < hello.sender)) return answer(call, Welcome::Verdict::kTaken);
  if (peer.begun) drop(*peer.begun);
  hello.host.back() = '\0';
  peer.host = hello.host.data();
  call.peer = hello.sender;
  const Welcome welcome;
  if (::send(call.socket.number(), &welcome, sizeof welcome, MSG_NOSIGNAL) != sizeof welcome) return drop(call);
  open(hello.sender, call);
}

void TcpLinks::answer(Call& call, Welcome::Verdict verdict) {
  Welcome welcome;
  welcome.verdict = verdict;
  if (::send(call.socket.number(), &welcome, sizeof welcome, MSG_NOSIGNAL) < 0) errno = 0;  // the caller has left
  drop(call);
}

void TcpLinks::open(int peer, Call& call) {
  Peer& to = peers_[peer];
  to.begun = nullptr;
  to.open = &call;
  call.state = Call::State::kOpen;
  write(to);
}

void TcpLinks::read(Call& call) {
  const int peer = call.peer;
  if (call.reader.read_from(call.socket, call)) return;
  const int error = call.reader.error();
  drop(call);
  if (error == 0 || error == ECONNRESET || error == EPIPE) {
    lose(peer, "has ended without a farewell: it was killed, or it crashed");
  } else {
    lose(peer, fmt::format("is no longer reached: {}", std::strerror(error)));
  }
}

void TcpLinks::lose(int peer, const std::string& what) {
  peers_[peer].is_gone = true;
  observer_.ended(peer, fmt::format("{} {}", name_of(peer), what));
}

void TcpLinks::add(int peer, Outgoing one) {
  Peer& to = peers_[peer];
  if (to.is_gone) return;
  const bool was_empty = to.line.empty();
  to.line.add(std::move(one));
  if (!to.open) return connect(peer);
  if (was_empty) write(to);
}

void TcpLinks::write(Peer& peer) {
  if (!peer.open) return;
  watch(*peer.open, peer.line.write_to(peer.open->socket, left_));
  if (peer.finishes && peer.line.empty()) ::shutdown(peer.open->socket.number(), SHUT_WR);
}

void TcpLinks::finish(int peer) {
  peers_[peer].finishes = true;
  write(peers_[peer]);
}

void TcpLinks::take_left(std::vector<uint64_t>& tokens) {
  tokens.insert(tokens.end(), left_.begin(), left_.end());
  left_.clear();
}

std::vector<int> TcpLinks::connected() const {
  std::vector<int> ranks;
  for (const auto& [rank, peer] : peers_) {
    if (peer.open) ranks.push_back(rank);
  }
  return ranks;
}

bool TcpLinks::all_arrived() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& one) {
    return !one.second.open || (one.second.line.empty() && is_acknowledged(one.second.open->socket));
  });
}

}  // namespace athanor::comm
