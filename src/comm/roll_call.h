#pragma once
// Who is missing: when a collective is not over in time, a rank asks the others of its group how many collectives of
// this group they have started. Their progress answers for them, whatever they are computing; so the ranks that have
// not come are told from those that only wait for them, too, and from those that do not answer at all.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "comm/operation.h"
#include "comm/wire.h"

namespace athanor::comm {

/// Runs under the lock of Progress, as operations do.
class RollCall {
 public:
  static constexpr int64_t kSilent = -1;  ///< instead of a count of collectives

  explicit RollCall(Wire& wire) : wire_(wire) {}

  /// Begins to listen.
  void open();
  void enroll(std::shared_ptr<const Members> members) { groups_[members->id] = members; }

  /// Asks every other member; the number of the question.
  int64_t ask(const Members& members);
  bool answered(int64_t question) const { return questions_.at(question).num_open == 0; }
  /// Collectives that each member has started, kSilent for those that have not answered. Ends the question.
  std::vector<int64_t> take(int64_t question);

  /// Tokens of its own messages are odd.
  static bool owns(uint64_t token) { return (token & 1) != 0; }
  void finished(const Wire::Finished& message);

 private:
  struct Note {
    int64_t is_answer, question, group, num_started;
  };
  struct Question {
    std::vector<int> wire_ranks;
    std::vector<int64_t> num_started;
    int num_open;
  };
  void listen();
  void send(int rank, const Note& note);

  Wire& wire_;
  Note heard_{};
  std::list<Note> said_;  ///< until they are gone
  std::map<int64_t, std::weak_ptr<const Members>> groups_;
  std::map<int64_t, Question> questions_;
  int64_t next_question_ = 0;
};

}  // namespace athanor::comm
