#pragma once
// Finds out who is late. When a collective is not complete in time, a rank asks those whose messages it lacks for their
// state. The MessagePump of those ranks answers, whatever they are computing. A rank that waits itself names the ranks
// that it waits for, in this call or in one of another group, and they are asked next. This ends with a rank that
// has not come and waits for no other, or that does not answer.
//
// So no rank asks all others: a rank has a bounded number of messages in flight, a look asks at most kMaxAsked
// questions, and every message has one size. In a group of more than kFewMembers ranks, only the first of the ranks
// that wait looks; the others ask it for what it found (finding.h), and look themselves if it does not know.

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

#include "wire/finding.h"
#include "wire/rank_state.h"
#include "wire/wire.h"

namespace athanor::comm {

/// Sends questions and answers them. Runs under the lock of MessagePump, as operations do.
class RollCall {
 public:
  RollCall(Wire& wire, const RankState& state) : wire_(wire), state_(state) {}

  /// Begins to receive questions.
  void open();

  /// Asks a rank of the world for its state in a call. Returns the number of the question.
  int64_t ask(int rank, const CallId& call) { return send_question(Note::kState, rank, call); }
  /// Asks a rank of the world what it has found in its look for a call. The answer's finding may be unknown.
  int64_t ask_for_finding(int rank, const CallId& call) { return send_question(Note::kFinding, rank, call); }
  /// The state is kSilent until there is an answer.
  const Answer& answer(int64_t question) const { return questions_.at(question).answer; }
  const Finding& finding(int64_t question) const { return questions_.at(question).finding; }
  void forget(int64_t question) { questions_.erase(question); }

  /// Keeps what this rank has found in its latest look, for those that ask.
  void publish(const CallId& call, const Finding& finding) {
    published_call_ = call;
    published_ = finding;
  }

  /// True if the message is a roll call's: their tokens are odd.
  static bool owns(uint64_t token) { return (token & 1) != 0; }
  void finished(const Wire::Finished& message);

 private:
  struct Note {
    enum Kind : int64_t { kState, kFinding, kAnswer };
    Kind kind = kState;
    int64_t question = 0;
    CallId call;
    Answer answer;
    Finding finding;
  };
  struct Answered {
    Answer answer;
    Finding finding;
  };
  int64_t send_question(Note::Kind kind, int rank, const CallId& call);
  void listen(Note& room);
  void send(int rank, const Note& note);

  Wire& wire_;
  const RankState& state_;
  std::array<Note, 8> heard_{};
  std::unordered_map<const Note*, std::unique_ptr<Note>> said_;  ///< messages until they have been sent
  std::unordered_map<int64_t, Answered> questions_;
  CallId published_call_{.group = -1};
  Finding published_;
  int64_t next_question_ = 0;
};

/// One search for the ranks that an operation waits for.
class Look {
 public:
  static constexpr size_t kMaxAsked = 256;
  static constexpr std::chrono::seconds kPatience{2};  ///< how long an answer may take

  Look(RollCall& roll_call, const RankState& state, const Operation& operation);
  ~Look();
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

  /// Takes the answers that have come, and asks further ranks. Does not wait: to be called again until it returns true,
  /// which means that no answer is missing (one that takes longer than kPatience counts as silence).
  bool over();
  /// Returns the late ranks found so far, ordered by rank.
  std::vector<Late> late() const;

 private:
  struct Asked {
    int rank;
    CallId call;
    int awaited_by;
    std::string group;
    int64_t question;
    RankState::Clock::time_point when;
  };
  void follow(int rank, const Answer& answer);
  void ask(Asked asked);
  void take(const Asked& asked, const Answer& answer);

  RollCall& roll_call_;
  const RankState& state_;
  int64_t group_;
  std::set<std::pair<int, CallId>> seen_;
  std::vector<Asked> open_;
  std::map<int, Late> late_;
};

}  // namespace athanor::comm
