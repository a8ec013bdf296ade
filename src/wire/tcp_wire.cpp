#include "wire/tcp_wire.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "wire/index_tree.h"
#include "wire/lost_rank.h"
#include "wire/mailbox.h"
#include "wire/tcp_links.h"

namespace athanor::comm {
namespace {

using std::chrono::milliseconds;
using Kind = Frame::Kind;

// How long the end of a connection may precede the message that explains it: a neighbour's death is reported at once,
// others' only if their neighbours do not.
constexpr milliseconds kNeighbourGrace{200}, kOtherGrace{3000};
// For messages that inform others of the end of this process, and for connections to end well.
constexpr milliseconds kLastWords{1000}, kLastFrames{5000};

// The ranks that a rank is connected with from the start.
std::vector<int> neighbours_of(int rank, int size) {
  std::vector<int> all = tree_children(rank, size);
  if (rank == 0) return all;
  all.push_back(tree_parent(rank));
  if (tree_parent(rank) == 0) {  // rank is a power of two, and so are the other children of rank 0
    if (rank > 1) all.push_back(rank / 2);
    if (2 * rank < size) all.push_back(2 * rank);
  }
  return all;
}

class TcpWire : public Wire, TcpLinks::Observer {
 public:
  TcpWire(std::shared_ptr<MeetingPlace> place, TcpWireOptions options)
      : options_(std::move(options)), neighbours_(neighbours_of(options_.rank, options_.size)),
        links_(std::move(place), options_.master, options_.rank, options_.size, options_.host, options_.patience,
               *this) {
    for (const int neighbour : neighbours_) {
      if (neighbour < rank()) links_.connect(neighbour);
    }
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  int max_tag() const override { return 1 << 30; }
  std::string library() const override { return "TCP without MPI"; }

  void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) override;
  void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) override;
  void poll(std::vector<Finished>& finished) override;
  bool has_moved() const override { return has_moved_; }
  void poll_after_failure() override;
  void close() override;
  [[noreturn]] void abort(int exit_code) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Room = Mailbox::Room;
  using Letter = Mailbox::Letter;
  struct Offer {
    int peer;
    const char* data;
    int64_t bytes;
    uint64_t token;
  };
  /// What is known of another rank.
  struct Peer {
    int64_t unconfirmed = 0;         ///< cost of the messages that it may have to keep
    int64_t to_confirm = 0;          ///< cost of its messages that were received since it was last informed
    std::optional<Room> room;        ///< the place for the message that arrives
    std::unique_ptr<char[]> kept;    ///< that message if there was no room
    std::map<uint64_t, Room> rooms;  ///< those of offers that were accepted
    std::string text;                ///< that arrives
    bool said_farewell = false;
  };
  struct Lost {
    int peer;
    std::string reason;
    Clock::time_point when;
  };

  char* begin(int peer, const Frame& frame) override;
  void end(int peer, const Frame& frame) override;
  void ended(int peer, const std::string& reason) override;
  char* begin_message(int peer, const Frame& frame);
  void end_message(int peer, const Frame& frame);
  void fill(const Room& room, const Letter& letter);
  void confirm(int peer, int64_t bytes);
  void send_offered(int peer, uint64_t id, bool wanted);

  void add(int peer, Kind kind, int tag = 0, uint64_t id = 0, int64_t bytes = 0) {
    links_.add(peer, {{kind, rank(), tag, static_cast<uint32_t>(bytes), id}});
  }
  Outgoing data_frame(Kind kind, int tag, uint64_t id, const void* data, int64_t bytes, uint64_t token) const {
    return {{kind, rank(), tag, static_cast<uint32_t>(bytes), id}, static_cast<const char*>(data), token, true};
  }
  void report(uint64_t token, int64_t bytes, int peer) { finished_.push_back({token, bytes, peer}); }

  void inform_all(const Frame& frame, const std::string& text);
  void fail_job(int peer, const std::string& reason);
  void look_for_ends();
  void move();
  [[noreturn]] void end_job(int exit_code);
  template <class Condition>
  void move_until(Condition condition, milliseconds limit);

  const TcpWireOptions options_;
  const std::vector<int> neighbours_;
  std::mutex mutex_;  // abort() may come from another thread than poll()
  TcpLinks links_;
  Mailbox mailbox_;
  std::unordered_map<int, Peer> peers_;
  std::unordered_map<uint64_t, Offer> offers_;
  uint64_t next_offer_ = 0;
  std::vector<Finished> finished_;
  std::vector<uint64_t> left_;
  bool has_moved_ = false;  // only the thread that polls reads it

  std::vector<Lost> lost_;  // connections whose end is not explained yet
  std::string failure_;     // a sentence, once a rank of the job has died
  int lost_rank_ = -1;      // that rank
  Clock::time_point failed_at_{};
  std::optional<int> exit_code_;  // once a rank has ended the job
  size_t num_ready_ = 0;          // children below which all ranks have called close()
  bool closing_ = false;          // all ranks have
};

void TcpWire::send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) {
  std::lock_guard lock(mutex_);
  Peer& to = peers_[peer];
  if (bytes <= kMaxEager && to.unconfirmed + cost_of(bytes) <= kCredit) {
    to.unconfirmed += cost_of(bytes);
    return links_.add(peer, data_frame(Kind::kMessage, tag, 0, data, bytes, token));
  }
  const uint64_t id = next_offer_++;
  offers_[id] = {peer, static_cast<const char*>(data), bytes, token};
  add(peer, Kind::kOffer, tag, id, bytes);
}

void TcpWire::receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) {
  std::lock_guard lock(mutex_);
  const Room room{data, bytes, token};
  if (const auto letter = mailbox_.find_letter(peer, tag, room)) fill(room, *letter);
}

// Puts a letter that has come into the room that has come to it.
void TcpWire::fill(const Room& room, const Letter& letter) {
  const bool fits = letter.bytes <= room.bytes;
  if (letter.offered) {
    if (fits) peers_[letter.peer].rooms[letter.offer] = room;
    add(letter.peer, fits ? Kind::kAccept : Kind::kRefuse, 0, letter.offer);
    if (!fits) report(room.token, kTooMuch, letter.peer);
    return;
  }
  if (fits && letter.bytes > 0) std::memcpy(room.data, letter.kept.get(), static_cast<size_t>(letter.bytes));
  report(room.token, fits ? letter.bytes : kTooMuch, letter.peer);
  confirm(letter.peer, letter.bytes);
}

// A sender is informed of every half of its credit.
void TcpWire::confirm(int peer, int64_t bytes) {
  int64_t& owed = peers_[peer].to_confirm;
  owed += cost_of(bytes);
  if (owed < kCredit / 2) return;
  add(peer, Kind::kCredit, 0, static_cast<uint64_t>(std::exchange(owed, 0)));
}

void TcpWire::send_offered(int peer, uint64_t id, bool wanted) {
  const auto found = offers_.find(id);
  if (found == offers_.end()) throw std::runtime_error(fmt::format("rank {} accepts what was not offered", peer));
  const Offer offer = found->second;
  offers_.erase(found);
  if (!wanted) return report(offer.token, offer.bytes, peer);
  links_.add(peer, data_frame(Kind::kData, 0, id, offer.data, offer.bytes, offer.token));
}

char* TcpWire::begin(int peer, const Frame& frame) {
  Peer& from = peers_[peer];
  switch (frame.kind) {
    case Kind::kMessage: return begin_message(peer, frame);
    case Kind::kData: {
      const Room& room = from.rooms.at(frame.id);
      if (frame.bytes > room.bytes) throw std::runtime_error(fmt::format("rank {} sent more than it offered", peer));
      return static_cast<char*>(room.data);
    }
    case Kind::kLost: from.text.resize(frame.bytes); return from.text.data();
    default: return nullptr;
  }
}

char* TcpWire::begin_message(int peer, const Frame& frame) {
  if (frame.bytes > kMaxEager) throw std::runtime_error(fmt::format("rank {} sent a frame that is too long", peer));
  Peer& from = peers_[peer];
  from.room = mailbox_.take_room(peer, frame.tag);
  if (from.room) return frame.bytes <= from.room->bytes ? static_cast<char*>(from.room->data) : nullptr;
  from.kept.reset(new char[frame.bytes]);
  return from.kept.get();
}

void TcpWire::end_message(int peer, const Frame& frame) {
  Peer& from = peers_[peer];
  if (const auto room = std::exchange(from.room, {})) {
    report(room->token, frame.bytes <= room->bytes ? frame.bytes : kTooMuch, peer);
    return confirm(peer, frame.bytes);
  }
  Letter letter{peer, frame.bytes, false, 0, std::move(from.kept)};
  if (const auto room = mailbox_.take_room(peer, frame.tag)) return fill(*room, letter);  // it came meanwhile
  mailbox_.keep(frame.tag, std::move(letter));
}

void TcpWire::end(int peer, const Frame& frame) {
  Peer& from = peers_[peer];
  switch (frame.kind) {
    case Kind::kMessage: return end_message(peer, frame);
    case Kind::kOffer: {
      Letter letter{peer, frame.bytes, true, frame.id, nullptr};
      const auto room = mailbox_.take_room(peer, frame.tag);
      return room ? fill(*room, letter) : mailbox_.keep(frame.tag, std::move(letter));
    }
    case Kind::kAccept: return send_offered(peer, frame.id, true);
    case Kind::kRefuse: return send_offered(peer, frame.id, false);
    case Kind::kData: {
      const auto room = from.rooms.find(frame.id);
      report(room->second.token, frame.bytes, peer);
      from.rooms.erase(room);
      return;
    }
    case Kind::kCredit: from.unconfirmed -= static_cast<int64_t>(frame.id); return;
    case Kind::kReady: ++num_ready_; return;
    case Kind::kClosing: closing_ = true; return;
    case Kind::kFarewell: from.said_farewell = true; return;
    case Kind::kAbort:
      if (!exit_code_) exit_code_ = frame.tag;
      return;
    case Kind::kLost: return fail_job(frame.tag, from.text);
  }
  throw std::runtime_error(fmt::format("rank {} sent a frame of an unknown kind", peer));
}

void TcpWire::move() {
  try {
    links_.move(0);
  } catch (const std::exception& error) {
    fail_job(rank(), fmt::format("rank {} ({}): {}", rank(), options_.host, error.what()));
  }
}

void TcpWire::poll(std::vector<Finished>& finished) {
  std::lock_guard lock(mutex_);
  move();
  has_moved_ = links_.has_moved();
  look_for_ends();
  links_.take_left(left_);
  for (const uint64_t token : left_) finished.push_back({token, 0, -1});
  left_.clear();
  finished.insert(finished.end(), finished_.begin(), finished_.end());
  finished_.clear();
  if (!failure_.empty()) throw LostRank(lost_rank_, failure_);
}

void TcpWire::inform_all(const Frame& frame, const std::string& text) {
  for (const int peer : links_.connected()) {
    Outgoing outgoing{frame};
    outgoing.frame.sender = rank();
    outgoing.frame.bytes = static_cast<uint32_t>(text.size());
    outgoing.text = text;
    links_.add(peer, std::move(outgoing));
  }
}

void TcpWire::ended(int peer, const std::string& reason) {
  if (closing_ || peers_[peer].said_farewell) return;
  lost_.push_back({peer, reason, Clock::now()});
}

void TcpWire::fail_job(int peer, const std::string& reason) {
  if (!failure_.empty()) return;
  failure_ = reason;
  lost_rank_ = peer;
  failed_at_ = Clock::now();
  inform_all({Kind::kLost, 0, peer}, reason);
}

void TcpWire::look_for_ends() {
  if (exit_code_) end_job(*exit_code_);
  if (closing_) return;
  const auto now = Clock::now();
  const auto is_certain = [&](const Lost& one) {
    const bool is_neighbour = std::find(neighbours_.begin(), neighbours_.end(), one.peer) != neighbours_.end();
    return now - one.when > (is_neighbour ? kNeighbourGrace : kOtherGrace);
  };
  const auto dead = std::find_if(lost_.begin(), lost_.end(), is_certain);
  if (dead != lost_.end()) fail_job(dead->peer, dead->reason);
}

// Whoever waits for other ranks has learnt of the failure by an exception of poll(), reports it with its step, and
// calls abort(). This function is for a job in which all ranks do something else, such as to wait for a device: the
// lowest rank that is left reports it then.
void TcpWire::poll_after_failure() {
  std::lock_guard lock(mutex_);
  move();
  if (exit_code_) end_job(*exit_code_);
  const milliseconds own_end = options_.own_end + std::min(rank(), 10) * milliseconds(200);
  if (failure_.empty() || Clock::now() - failed_at_ < own_end) return;
  const std::string line = fmt::format("rank {} ({}): the network failed: {}\n", rank(), options_.host, failure_);
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) errno = 0;  // without a lock that another thread may have
  end_job(exit_code::kCollective);
}

template <class Condition>
void TcpWire::move_until(Condition condition, milliseconds limit) {
  for (const auto begin = Clock::now(); !condition() && Clock::now() - begin < limit;) links_.move(10);
}

// To be called with the lock, which no other thread gets any more.
void TcpWire::end_job(int exit_code) {
  try {
    inform_all({Kind::kAbort, 0, exit_code}, "");
    move_until([&] { return links_.all_arrived(); }, kLastWords);
  } catch (const std::exception&) {
    // The others will notice that this process has ended.
  }
  if (options_.end_process) options_.end_process(exit_code);
  _exit(exit_code);
}

void TcpWire::abort(int exit_code) {
  std::fflush(nullptr);
  mutex_.lock();
  end_job(exit_code);
}

void TcpWire::close() {
  std::lock_guard lock(mutex_);
  const auto wait_for = [&](const auto& condition) {
    while (!condition()) {
      links_.move(20);
      look_for_ends();
      if (!failure_.empty()) throw std::runtime_error(failure_);
    }
  };
  const auto children = tree_children(rank(), size());
  wait_for([&] { return num_ready_ == children.size(); });
  if (rank() > 0) {
    add(tree_parent(rank()), Kind::kReady);
    wait_for([&] { return closing_; });
  }
  closing_ = true;
  for (const int child : children) add(child, Kind::kClosing);
  // Each side reads until the other has sent its farewell: what a closed socket had not read would cost what it has
  // sent.
  for (const int peer : links_.connected()) {
    add(peer, Kind::kFarewell);
    links_.finish(peer);
  }
  move_until([&] { return links_.connected().empty(); }, kLastFrames);
}

}  // namespace

std::unique_ptr<Wire> open_tcp_wire(std::shared_ptr<MeetingPlace> place, TcpWireOptions options) {
  return std::make_unique<TcpWire>(std::move(place), std::move(options));
}

}  // namespace athanor::comm
