#include "wire/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <linux/sockios.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/process.h"

namespace athanor::comm {
namespace {

constexpr int kNoWait = SOCK_NONBLOCK | SOCK_CLOEXEC;
// A peer whose machine has lost power, or whose cable was pulled, is noticed after two minutes.
constexpr int kProbeAfter_s = 30, kProbeEvery_s = 15, kProbes = 6;
constexpr int kUnacknowledged_ms = 120'000;

void set_option(const Descriptor& socket, int level, int option, int value) {
  ::setsockopt(socket.number(), level, option, &value, sizeof value);
}

// Messages leave at once, and dead machines are noticed.
void prepare(const Descriptor& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfter_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeEvery_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledged_ms);
}

bool out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

[[noreturn]] void fail_socket(const char* what, int error) {
  fail<CommError>("{}: {}{}", what, std::strerror(error),
                  out_of_descriptors(error) ? "; a rank needs one descriptor for each rank that it exchanges messages "
                                              "with: raise `ulimit -n`"
                                            : "");
}

Descriptor new_socket(int family, int type) {
  Descriptor socket(::socket(family, type | kNoWait, 0));
  if (!socket && out_of_descriptors(errno)) fail_socket("cannot open a socket", errno);
  return socket;
}

SocketAddress name_of(const Descriptor& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

SocketAddress every_address(int family) {
  SocketAddress any;
  any.storage.ss_family = static_cast<sa_family_t>(family);
  any.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);  // all zero: any address, any port
  return any;
}

bool bind_and_listen(const Descriptor& socket, const SocketAddress& address) {
  return socket && ::bind(socket.number(), address.raw(), address.length) == 0 &&
         ::listen(socket.number(), SOMAXCONN) == 0;
}

}  // namespace

void Descriptor::reset(int number) {
  if (number_ >= 0) ::close(number_);
  number_ = number;
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

int SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                                            : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

void SocketAddress::set_port(int port) {
  const auto network = htons(static_cast<uint16_t>(port));
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = network;
  } else {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = network;
  }
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(raw(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

std::string SocketAddress::text() const {
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host(), port()) : fmt::format("{}:{}", host(), port());
}

std::vector<SocketAddress> addresses_of(const std::string& host, int port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  std::vector<SocketAddress> all;
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return all;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    address.set_port(port);
    all.push_back(address);
  }
  ::freeaddrinfo(found);
  return all;
}

std::vector<SocketAddress> master_addresses(const std::string& host, int port) {
  auto all = addresses_of(host, port);
  if (!all.empty()) return all;
  fail<ConfigError>(
      "MASTER_ADDR ({}) is not a host that this machine ({}) knows; set it to the name or number of the host where "
      "rank 0 runs",
      host, host_name());
}

bool means_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

SocketAddress address_towards(const std::string& host, int port) {
  const auto targets = master_addresses(host, port);
  for (const SocketAddress& target : targets) {
    // Connecting a socket of UDP sends nothing: the kernel chooses the way, and with it the address of this end.
    const Descriptor socket = new_socket(target.storage.ss_family, SOCK_DGRAM);
    if (!socket || ::connect(socket.number(), target.raw(), target.length) != 0) continue;
    SocketAddress own = name_of(socket);
    own.set_port(0);
    return own;
  }
  fail<ConfigError>(
      "there is no way from this machine ({}) to MASTER_ADDR ({}, {}): {}; set it to an address of rank 0's host that "
      "all hosts reach",
      host_name(), host, targets[0].host(), std::strerror(errno));
}

Descriptor listen_at(const SocketAddress& address, bool everywhere) {
  Descriptor socket;
  if (everywhere) {  // both families, if this machine has IPv6
    socket = new_socket(AF_INET6, SOCK_STREAM);
    if (socket) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind_and_listen(socket, every_address(AF_INET6))) return socket;
  }
  socket = new_socket(address.storage.ss_family, SOCK_STREAM);
  if (!bind_and_listen(socket, everywhere ? every_address(address.storage.ss_family) : address)) {
    fail_socket("cannot listen for the other ranks", errno);
  }
  return socket;
}

Descriptor listen_at_port(int port, int& error) {
  for (const int family : {AF_INET6, AF_INET}) {  // a socket of IPv6 takes callers of both
    Descriptor socket = new_socket(family, SOCK_STREAM);
    if (socket) {
      set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // connections of an earlier job may still wait for their end
      if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
      SocketAddress any = every_address(family);
      any.set_port(port);
      if (bind_and_listen(socket, any)) return socket;
    }
    error = errno;
    if (error == EADDRINUSE || error == EACCES) break;
  }
  return {};
}

int port_of(const Descriptor& listening) { return name_of(listening).port(); }

Descriptor accept_from(const Descriptor& listening) {
  Descriptor socket(::accept4(listening.number(), nullptr, nullptr, kNoWait));
  if (!socket && out_of_descriptors(errno)) fail_socket("cannot accept a connection of another rank", errno);
  if (socket) prepare(socket);
  return socket;
}

Descriptor begin_connection(const SocketAddress& address) {
  Descriptor socket = new_socket(address.storage.ss_family, SOCK_STREAM);
  if (!socket) return socket;
  prepare(socket);
  if (::connect(socket.number(), address.raw(), address.length) != 0 && errno != EINPROGRESS) socket.reset();
  return socket;
}

int error_of(const Descriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

bool is_acknowledged(const Descriptor& socket) {
  int waiting = 0;
  return ::ioctl(socket.number(), SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace athanor::comm
