#pragma once
// Who is late: when a collective is not over in time, a rank asks those whose messages it lacks how they stand. Their
// progress answers for them, whatever they are computing. Who waits as well names those it waits for, in this call or
// in one of another group, and they are asked next, until somebody has not come and waits for nobody, or does not
// answer.
//
// So nobody asks all others: a rank has a bounded number of messages in flight, a look asks kMaxAsked at most, and what
// is said has one size.

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/standing.h"
#include "comm/wire.h"

namespace athanor::comm {

/// Questions and answers. Runs under the lock of Progress, as operations do.
class RollCall {
 public:
  RollCall(Wire& wire, const Standing& standing) : wire_(wire), standing_(standing) {}

  /// Begins to listen.
  void open();

  /// Asks a rank of the world how it stands to a call; the number of the question.
  int64_t ask(int rank, const CallId& call);
  /// State kSilent until there is one.
  const Answer& answer(int64_t question) const { return questions_.at(question); }
  void forget(int64_t question) { questions_.erase(question); }

  /// Tokens of its own messages are odd.
  static bool owns(uint64_t token) { return (token & 1) != 0; }
  void finished(const Wire::Finished& message);

 private:
  struct Note {
    int64_t is_answer = 0, question = 0;
    CallId call;
    Answer answer;
  };
  void listen(Note& room);
  void send(int rank, const Note& note);

  Wire& wire_;
  const Standing& standing_;
  std::array<Note, 8> heard_{};
  std::unordered_map<const Note*, std::unique_ptr<Note>> said_;  ///< until they are gone
  std::unordered_map<int64_t, Answer> questions_;
  int64_t next_question_ = 0;
};

/// A rank that others wait for, and that waits for nobody.
struct Late {
  int rank;                                       ///< in the world
  bool answers;                                   ///< its process is alive, but has not come
  int64_t worked = 0, still_ms = Answer::kNever;  ///< see Answer
  int awaited_by = -1;  ///< a rank that waits for it elsewhere than where the look began; −1: there
  std::string group;    ///< where that one waits
};

/// One look at whom an operation waits for.
class Look {
 public:
  static constexpr size_t kMaxAsked = 256;
  static constexpr std::chrono::seconds kPatience{2};  ///< with an answer

  Look(RollCall& roll_call, const Standing& standing, const Operation& operation);
  ~Look();
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

  /// Takes what has been answered, and asks on. True: there is nobody left to ask.
  bool over();
  /// By rank.
  std::vector<Late> late() const;

 private:
  struct Asked {
    int rank;
    CallId call;
    int awaited_by;
    std::string group;
    int64_t question;
    Standing::Clock::time_point when;
  };
  void follow(int rank, const Answer& answer);
  void ask(Asked asked);
  void take(const Asked& asked, const Answer& answer);

  RollCall& roll_call_;
  const Standing& standing_;
  int64_t group_;
  std::set<std::pair<int, CallId>> seen_;
  std::vector<Asked> open_;
  std::map<int, Late> late_;
};

}  // namespace athanor::comm
