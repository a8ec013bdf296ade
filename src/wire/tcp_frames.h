#pragma once
// What two ranks send each other over a connection of TCP: a greeting of each side, then frames, in the byte order of
// the machine.
//
// A frame is a header and, for some kinds, bytes. A message of up to kMaxEager bytes is one frame. It may come before
// its receive, and is then kept; a rank keeps at most kCredit bytes for each of the others, since the sender counts
// what it has sent and has not heard to be received. Longer messages, and those beyond the credit, are offered: their
// bytes follow when the receiver has a room for them, and go there without a copy.

#include <array>
#include <cstdint>
#include <type_traits>

namespace athanor::comm {

struct Frame {
  enum class Kind : uint32_t {
    kMessage,   ///< a whole message, with its bytes
    kOffer,     ///< a message whose bytes wait for kAccept or kRefuse; `bytes` is its length
    kAccept,    ///< the room for an offer (`id`) is there
    kRefuse,    ///< the room for an offer is too small: its bytes are not wanted
    kData,      ///< the bytes of an offer
    kCredit,    ///< `id` bytes of kMessage have been received
    kReady,     ///< to the parent in the tree: this rank and all below it have called close()
    kClosing,   ///< to the children: all ranks have called close()
    kFarewell,  ///< the last frame of a connection that ends well
    kAbort,     ///< the job ends with the exit code `tag`
    kLost,      ///< the connection to rank `tag` has ended otherwise; the bytes are a sentence that describes it
  };

  Kind kind = Kind::kMessage;
  int32_t sender = 0;
  int32_t tag = 0;
  uint32_t bytes = 0;  ///< at most Wire::kMaxMessage
  uint64_t id = 0;     ///< number of an offer, drawn by its sender

  bool has_bytes() const { return kind == Kind::kMessage || kind == Kind::kData || kind == Kind::kLost; }
};
static_assert(sizeof(Frame) == 24 && std::is_trivially_copyable_v<Frame>);

inline constexpr int64_t kMaxEager = 32 << 10;
inline constexpr int64_t kCredit = 256 << 10;
/// What a message counts, so that empty ones are bounded too.
inline constexpr int64_t cost_of(int64_t bytes) { return bytes + static_cast<int64_t>(sizeof(Frame)); }

/// The first bytes that the caller sends. Their order stays the same in all versions up to `job`.
struct Hello {
  static constexpr std::array<char, 8> kMagic{'a', 't', 'h', 'a', 'n', 'o', 'r', '\n'};
  static constexpr uint32_t kVersion = 1;  ///< counts the changes of this file that others do not understand

  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  int32_t sender = -1;
  uint64_t job = 0;  ///< drawn at the meeting of the job, so that other jobs and strangers are refused
  int32_t receiver = -1, size = 0;
  std::array<char, 64> host{};  ///< the caller's, for messages
};
static_assert(sizeof(Hello) == 96 && std::is_trivially_copyable_v<Hello>);

/// The first bytes of the one that was called.
struct Welcome {
  enum class Verdict : uint32_t {
    kWelcome,       ///< frames may follow, in both directions
    kTaken,         ///< there is a connection already, or the one that the other side has begun is used
    kOtherVersion,  ///< the two programs do not understand each other
  };
  std::array<char, 8> magic = Hello::kMagic;
  uint32_t version = Hello::kVersion;
  Verdict verdict = Verdict::kWelcome;
};
static_assert(sizeof(Welcome) == 16 && std::is_trivially_copyable_v<Welcome>);

}  // namespace athanor::comm
