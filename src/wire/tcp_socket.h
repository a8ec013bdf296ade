#pragma once
// Sockets of TCP as the wire uses them (tcp_wire.h): addresses of IPv4 and IPv6, without waiting for names or peers.

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::comm {

/// A descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(); }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void reset(int number = -1);
  int release() {
    const int number = number_;
    number_ = -1;
    return number;
  }

 private:
  int number_ = -1;
};

/// An address of IPv4 or IPv6, with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_loopback() const;
  int port() const;
  void set_port(int port);
  std::string host() const;  ///< "10.0.0.5"
  std::string text() const;  ///< "10.0.0.5:29500", "[fe80::1]:29500"
};

/// Returns the addresses of a host, given by name or number; none if it is unknown.
std::vector<SocketAddress> addresses_of(const std::string& host, int port);
/// Returns the addresses of the host that MASTER_ADDR names. @throws ConfigError if this machine does not know it.
std::vector<SocketAddress> master_addresses(const std::string& host, int port);
/// True for "localhost" and numbers such as 127.0.0.1 and ::1: what no other machine can mean.
bool means_this_machine(const std::string& host);
/// Returns the address of this machine by which it reaches another one, which need not be up; port 0.
/// @throws ConfigError if the host is unknown or there is no way to it.
SocketAddress address_towards(const std::string& host, int port);

// What these return never blocks, and is closed when a program is started. They throw CommError if there are no more
// descriptors.

/// Listens at a port that the system chooses: at `address` alone, or (`everywhere`) at all addresses of this machine.
Descriptor listen_at(const SocketAddress& address, bool everywhere);
/// Listens at a given port of all addresses of this machine. An empty descriptor, and `error`, if that is refused.
Descriptor listen_at_port(int port, int& error);
int port_of(const Descriptor& listening);
/// Takes the next caller; an empty descriptor if there is none.
Descriptor accept_from(const Descriptor& listening);
/// Begins to connect. The socket is writable once this has ended; then error_of tells how.
Descriptor begin_connection(const SocketAddress& address);
/// Takes the pending error of a socket; 0 if there is none.
int error_of(const Descriptor& socket);
/// True if the kernel of the peer has everything that was written.
bool is_acknowledged(const Descriptor& socket);

/// Allows this process as many descriptors as it may have.
void raise_descriptor_limit();

}  // namespace athanor::comm
