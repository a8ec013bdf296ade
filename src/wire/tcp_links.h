#pragma once
// One connection of TCP between each two ranks that have something to send each other, made when the first of them
// has.
//
// A rank listens at an address that it leaves at the meeting place. The caller sends a Hello and may send frames after
// the Welcome. If two ranks call each other at the same time, the call of the lower one is used: frames wait in the
// line of the peer, not of the socket, so none is lost or sent twice. A caller that does not know the number of the job
// is closed without an answer.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/meeting_place.h"
#include "wire/tcp_socket.h"
#include "wire/tcp_stream.h"

namespace athanor::comm {

class TcpLinks {
 public:
  /// Learns what happens on the connections, within calls of move().
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual char* begin(int peer, const Frame& frame) = 0;  ///< as FrameReader::Receiver's
    virtual void end(int peer, const Frame& frame) = 0;
    /// The connection has ended, or none can be made; `reason` is "rank 3 (node2) …".
    virtual void ended(int peer, const std::string& reason) = 0;
  };

  /// Meets the other ranks of the job at `place`. Collective over the job.
  /// @param master    the host of the meeting place: the address of this rank is that by which it reaches this host.
  /// @param patience  for ranks that have not come.
  TcpLinks(std::shared_ptr<MeetingPlace> place, const std::string& master, int rank, int size, const std::string& host,
           std::chrono::milliseconds patience, Observer& observer);
  ~TcpLinks();
  TcpLinks(const TcpLinks&) = delete;
  TcpLinks& operator=(const TcpLinks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Begins to connect to a rank, unless that was done before.
  void connect(int peer);
  /// Puts a frame into the line to a rank, connects if necessary, and writes what the socket takes. A rank whose
  /// connection has ended gets nothing.
  void add(int peer, Outgoing one);
  /// Appends the tokens of frames that have left since the last call.
  void take_left(std::vector<uint64_t>& tokens);
  /// Makes progress; waits up to `wait_ms` for something to do.
  void move(int wait_ms);
  /// True if the last move() found something to read or room to write.
  bool has_moved() const { return has_moved_; }

  /// Returns the ranks with an open connection.
  std::vector<int> connected() const;
  /// True if all frames to connected ranks are in the memory of their machines.
  bool all_arrived() const;
  /// Tells a rank that no frame will follow, after those in its line: it will read the end of the connection.
  void finish(int peer);

  std::string address() const { return own_.text(); }  ///< at which this rank listens

 private:
  using Clock = std::chrono::steady_clock;
  struct Call;
  struct Peer {
    OutLine line;
    Call* open = nullptr;   ///< the connection
    Call* begun = nullptr;  ///< this rank's own call, until it is answered
    bool is_gone = false;
    bool calls = false;     ///< the other side has begun a call, and this one waits for it
    bool finishes = false;  ///< no frame follows those in the line
    std::string host;
  };

  void accept_all();
  Call& new_call(Descriptor socket);
  void drop(Call& call);
  void watch(Call& call, bool writing);
  void serve(Call& call, uint32_t events);
  void say_hello(Call& call);
  void hear_welcome(Call& call);
  void hear_hello(Call& call);
  void answer(Call& call, Welcome::Verdict verdict);
  bool is_for_this_rank(const Hello& hello) const;
  void open(int peer, Call& call);
  void read(Call& call);
  void write(Peer& peer);
  void lose(int peer, const std::string& what);
  void drop_silent_calls();
  SocketAddress address_of(int peer);
  std::string name_of(int peer);

  std::shared_ptr<MeetingPlace> place_;
  std::string master_, host_;
  int rank_, size_;
  uint64_t job_ = 0;
  Observer& observer_;
  SocketAddress own_;
  Descriptor listening_, epoll_;
  std::unordered_map<int, Peer> peers_;
  std::unordered_map<int, std::unique_ptr<Call>> calls_;  ///< by descriptor
  std::vector<uint64_t> left_;
  Clock::time_point last_look_{};
  bool has_moved_ = false;
};

}  // namespace athanor::comm
