#include "board/report_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"

namespace athanor::board {
namespace {

std::optional<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof(address.sun_path)) return {};
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

void limit_time(int descriptor, int option, int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(descriptor, SOL_SOCKET, option, &limit, sizeof(limit));
}

}  // namespace

ReportSocket::ReportSocket(const std::filesystem::path& path) {
  const auto address = address_of(path);
  if (!address) fail<Error>("the path of the socket {} is too long", path.string());
  descriptor_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor_ < 0) fail_errno("cannot make the socket", path.string());
  ::unlink(path.c_str());  // a collector that was killed left it: this one has its lock
  const mode_t before = ::umask(077);
  const bool bound = ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0;
  ::umask(before);
  if (!bound || ::listen(descriptor_, 16) != 0) {
    ::close(descriptor_);
    fail_errno("cannot listen at", path.string());
  }
}

ReportSocket::~ReportSocket() { ::close(descriptor_); }

int ReportSocket::take() const { return ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC); }

void ReportSocket::answer(const std::function<std::string()>& text) const {
  const int peer = take();
  if (peer < 0) return;
  send_answer(peer, text());
  ::close(peer);
}

std::string read_request(int peer) {
  limit_time(peer, SO_RCVTIMEO, 1);
  std::string text;
  char block[4096];
  for (ssize_t now = 0; text.find('\n') == std::string::npos && text.size() < sizeof(block);) {
    now = ::recv(peer, block, sizeof(block), 0);
    if (now <= 0) return "";
    text.append(block, static_cast<size_t>(now));
  }
  return text.substr(0, text.find('\n'));
}

void send_answer(int peer, const std::string& text) {
  limit_time(peer, SO_SNDTIMEO, 1);
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(peer, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) break;
    sent += static_cast<size_t>(now);
  }
}

std::optional<std::string> ask_collector(const std::filesystem::path& path, const std::string& request,
                                         int patience_s) {
  const auto address = address_of(path);
  if (!address) return {};
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return {};
  limit_time(descriptor, SO_RCVTIMEO, patience_s);
  limit_time(descriptor, SO_SNDTIMEO, 2);  // also that of connect, if many ask
  std::string text;
  ssize_t now = -1;
  if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) {
    char block[65536];
    if (!request.empty()) send_answer(descriptor, request);
    while ((now = ::recv(descriptor, block, sizeof(block), 0)) > 0) text.append(block, static_cast<size_t>(now));
  }
  ::close(descriptor);
  if (now < 0 || text.empty() || text.back() != '\n') return {};  // cut off
  return text;
}

}  // namespace athanor::board
