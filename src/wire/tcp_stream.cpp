#include "wire/tcp_stream.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace athanor::comm {
namespace {

constexpr int64_t kHeader = sizeof(Frame);
constexpr size_t kMaxPieces = 64;      // for one system call
constexpr int64_t kRound = 4 << 20;    // bytes to read or write before other connections have their turn
constexpr int64_t kStaging = 8 << 10;  // headers and short messages; long ones lose at most this to a copy

}  // namespace

bool OutLine::write_to(const Descriptor& socket, std::vector<uint64_t>& left) {
  for (int64_t round = 0; !line_.empty() && round < kRound;) {
    std::array<iovec, kMaxPieces> pieces;
    size_t count = 0;
    int64_t wanted = 0;
    for (const Outgoing& one : line_) {
      if (count + 2 > kMaxPieces) break;
      const int64_t of_header = std::min(one.written, kHeader), of_data = one.written - of_header;
      if (of_header < kHeader) {
        auto* header = const_cast<char*>(reinterpret_cast<const char*>(&one.frame));
        pieces[count++] = {header + of_header, static_cast<size_t>(kHeader - of_header)};
      }
      if (one.length() > kHeader) {
        pieces[count++] = {const_cast<char*>(one.bytes()) + of_data,
                           static_cast<size_t>(one.length() - kHeader - of_data)};
      }
      wanted += one.length() - one.written;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket.number(), &message, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    advance(sent, left);
    round += sent;
    if (sent < wanted) return true;
  }
  return !line_.empty();
}

void OutLine::advance(int64_t bytes, std::vector<uint64_t>& left) {
  while (bytes > 0) {
    Outgoing& first = line_.front();
    const int64_t more = std::min(bytes, first.length() - first.written);
    first.written += more;
    bytes -= more;
    if (first.written < first.length()) return;
    if (first.reports) left.push_back(first.token);
    line_.pop_front();
  }
}

bool FrameReader::read_from(const Descriptor& socket, Receiver& receiver) {
  std::array<char, kStaging> staging;
  for (int64_t round = 0; round < kRound;) {
    std::array<iovec, 2> pieces;
    int count = 0;
    const int64_t direct = to_ ? missing_ : 0;
    if (direct > 0) pieces[static_cast<size_t>(count++)] = {to_, static_cast<size_t>(direct)};
    pieces[static_cast<size_t>(count++)] = {staging.data(), staging.size()};
    const ssize_t got = ::readv(socket.number(), pieces.data(), count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      error_ = got < 0 ? errno : 0;
      return got < 0 && (error_ == EAGAIN || error_ == EWOULDBLOCK);
    }
    round += got;
    const int64_t placed = std::min<int64_t>(got, direct);
    to_ += placed;
    missing_ -= placed;
    if (direct > 0 && missing_ == 0) finish(receiver);
    take(staging.data(), got - placed, receiver);
    if (got < direct + kStaging) return true;  // there was no more
  }
  return true;
}

void FrameReader::finish(Receiver& receiver) {
  const Frame frame = frame_;
  header_bytes_ = 0;
  to_ = nullptr;
  receiver.end(frame);
}

void FrameReader::take(const char* data, int64_t size, Receiver& receiver) {
  while (size > 0) {
    int64_t taken = 0;
    if (header_bytes_ < kHeader) {
      taken = std::min(size, kHeader - header_bytes_);
      std::memcpy(reinterpret_cast<char*>(&frame_) + header_bytes_, data, static_cast<size_t>(taken));
      header_bytes_ += taken;
      if (header_bytes_ == kHeader) {
        to_ = receiver.begin(frame_);
        missing_ = frame_.has_bytes() ? frame_.bytes : 0;
        if (missing_ == 0) finish(receiver);
      }
    } else {
      taken = std::min(size, missing_);
      if (to_) {
        std::memcpy(to_, data, static_cast<size_t>(taken));
        to_ += taken;
      }
      missing_ -= taken;
      if (missing_ == 0) finish(receiver);
    }
    data += taken;
    size -= taken;
  }
}

}  // namespace athanor::comm
