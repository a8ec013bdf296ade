#include "base/first_word.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace athanor {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Word {
  std::array<char, 8> magic{'a', 't', 'h', ' ', 'e', 'n', 'd', 's'};
  int32_t exit_code = 0;
};

/// A socket that is closed at the end.
struct Socket {
  explicit Socket(int descriptor) : number(descriptor) {}
  ~Socket() {
    if (number >= 0) ::close(number);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int number;
};

bool is_ready(const Socket& socket, short events, std::chrono::milliseconds limit) {
  pollfd one{socket.number, events, 0};
  return ::poll(&one, 1, static_cast<int>(limit.count())) > 0;
}

std::vector<sockaddr_in6> addresses_of_master(const MasterAddress& master) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET6;  // addresses of IPv4 as parts of IPv6: one kind of socket for both
  wanted.ai_flags = AI_V4MAPPED | AI_ALL;
  wanted.ai_socktype = SOCK_STREAM;
  std::vector<sockaddr_in6> all;
  if (::getaddrinfo(master.host.c_str(), std::to_string(master.port).c_str(), &wanted, &found) != 0) return all;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    all.emplace_back();
    std::memcpy(&all.back(), one->ai_addr, sizeof(sockaddr_in6));
  }
  ::freeaddrinfo(found);
  return all;
}

enum class Reply { kNone, kOther, kWord };

Reply ask(const sockaddr_in6& address, int& exit_code) {
  const Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.number, raw, sizeof address) != 0 && errno != EINPROGRESS) return Reply::kNone;
  int error = 0;
  socklen_t length = sizeof error;
  if (!is_ready(socket, POLLOUT, 500ms)) return Reply::kNone;
  if (::getsockopt(socket.number, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return Reply::kNone;
  Word word;
  if (!is_ready(socket, POLLIN, 500ms)) return Reply::kOther;  // a store waits for its clients to speak
  if (::recv(socket.number, &word, sizeof word, 0) != sizeof word || word.magic != Word().magic) return Reply::kOther;
  exit_code = word.exit_code;
  return Reply::kWord;
}

}  // namespace

void give_first_word(const MasterAddress& master, int num_others, int exit_code, std::chrono::milliseconds limit) {
  const Socket listening(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  ::setsockopt(listening.number, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ::setsockopt(listening.number, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<uint16_t>(master.port));
  if (::bind(listening.number, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return;
  if (::listen(listening.number, SOMAXCONN) != 0) return;
  Word word;
  word.exit_code = exit_code;
  const auto end = Clock::now() + limit;
  for (int told = 0; told < num_others && Clock::now() < end;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (!is_ready(listening, POLLIN, std::max(left, 1ms))) return;
    const Socket caller(::accept4(listening.number, nullptr, nullptr, SOCK_CLOEXEC));
    if (caller.number >= 0 && ::send(caller.number, &word, sizeof word, MSG_NOSIGNAL) == sizeof word) ++told;
  }
}

std::optional<int> hear_first_word(const MasterAddress& master, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  const auto addresses = addresses_of_master(master);
  int exit_code = 0;
  while (Clock::now() < end) {
    for (const sockaddr_in6& address : addresses) {
      const Reply reply = ask(address, exit_code);
      if (reply == Reply::kWord) return exit_code;
      if (reply == Reply::kOther) {  // rank 0 has met no failure so far
        std::this_thread::sleep_until(end);
        return {};
      }
    }
    std::this_thread::sleep_for(200ms);
  }
  return {};
}

}  // namespace athanor
