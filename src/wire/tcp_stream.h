#pragma once
// Frames over one socket that never blocks: the line of those that leave, and the one that arrives.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "wire/tcp_frames.h"
#include "wire/tcp_socket.h"

namespace athanor::comm {

/// A frame on its way out. Its bytes are the caller's until the token is reported, or a text of this object.
struct Outgoing {
  Frame frame;
  const char* data = nullptr;
  uint64_t token = 0;
  bool reports = false;  ///< the caller wants to learn that the bytes have left
  std::string text{};    ///< the bytes if `data` is null
  int64_t written = 0;   ///< bytes of header and data that have left

  int64_t length() const { return static_cast<int64_t>(sizeof(Frame)) + (frame.has_bytes() ? frame.bytes : 0); }
  const char* bytes() const { return data ? data : text.data(); }
};

/// The frames that wait to be written. They outlive a socket, since it may turn out that the peer's is used.
class OutLine {
 public:
  void add(Outgoing one) { line_.push_back(std::move(one)); }
  bool empty() const { return line_.empty(); }
  /// Writes as much as the socket takes, and appends the tokens of what has left. An error of the socket is left to the
  /// reading side, where something may have come before it.
  /// @return true if there is more to write and the socket works.
  bool write_to(const Descriptor& socket, std::vector<uint64_t>& left);

 private:
  void advance(int64_t bytes, std::vector<uint64_t>& left);

  std::deque<Outgoing> line_;
};

/// Takes the frames that arrive.
class FrameReader {
 public:
  class Receiver {
   public:
    virtual ~Receiver() = default;
    /// Called with the header; returns where its bytes go, or null if they are not wanted.
    virtual char* begin(const Frame& frame) = 0;
    /// Called when all bytes of the frame have come.
    virtual void end(const Frame& frame) = 0;
  };

  /// Reads what is there, up to a few megabytes. @return false if the peer has ended the connection, or it has failed;
  /// error() then is the errno, or 0.
  bool read_from(const Descriptor& socket, Receiver& receiver);
  int error() const { return error_; }

 private:
  void take(const char* data, int64_t size, Receiver& receiver);
  void finish(Receiver& receiver);

  Frame frame_;
  int64_t header_bytes_ = 0;  ///< those of frame_ that have come
  char* to_ = nullptr;        ///< where the next byte of frame_ goes
  int64_t missing_ = 0;       ///< bytes of frame_ after its header
  int error_ = 0;
};

}  // namespace athanor::comm
