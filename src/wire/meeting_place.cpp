#include "wire/meeting_place.h"

#include <random>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/told_error.h"

namespace athanor::comm {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSearch{60'000};           // 12,288 questions of a millisecond, five times over
constexpr milliseconds kShortWay{5'000};          // for a text that another rank leaves just now
constexpr milliseconds kBetweenQuestions{1'000};  // between two questions of a rank that waits (comm/store_meeting.cpp)
constexpr milliseconds kFarewell = kBetweenQuestions * 3 / 2;
constexpr int kMaxNamed = 8;

std::string key_of(int rank) { return fmt::format("rank/{}", rank); }

std::string draw_number() {
  std::random_device random;
  return fmt::format("{}", uint64_t{random()} << 32 | random());
}

// Returns the ranks that have not come, as text: "3, 7 and 12 more".
std::string missing_ranks(MeetingPlace& place, int size) {
  std::string named;
  int missing = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (place.get(key_of(rank), milliseconds(0))) continue;
    if (++missing <= kMaxNamed) named += fmt::format("{}{}", missing == 1 ? "" : ", ", rank);
  }
  if (missing > kMaxNamed) named += fmt::format(" and {} more", missing - kMaxNamed);
  return named;
}

// What the ranks wait for: the number of the job, or one of these marks and why there is none. The first to decide is
// believed.
constexpr char kRefused = '!', kGivenUp = '?';

void decide(MeetingPlace& place, const std::string& verdict) {
  if (place.count("verdicts") == 1) place.set("job", verdict);
}

std::string describe_missing(const MeetingPlace& place, int size, const std::string& missing, milliseconds patience) {
  return fmt::format(
      "these of {} ranks have not come to the meeting at {} within {:.1f} s: {}; look whether their processes were "
      "started, and whether their hosts reach that address. {}",
      size, place.name(), static_cast<double>(patience.count()) / 1000, missing, kHowLong);
}

// The first whose patience has ended looks who is missing, reports it, and ends the wait of all. Returns what was
// decided: the last ranks may come while it looks.
std::string give_up(MeetingPlace& place, const Comer& me, milliseconds patience) {
  if (place.count("searches") == 1) {
    const std::string missing = missing_ranks(place, me.size);
    if (!missing.empty() && place.count("verdicts") == 1) {
      const std::string text = describe_missing(place, me.size, missing, patience);
      log::error("{}{}", me.rank == 0 ? "" : fmt::format("rank {} ({}): ", me.rank, me.host), text);
      place.set("job", kGivenUp + text);
    }
  }
  if (const auto job = place.get("job", kSearch)) return *job;
  fail<CommError>("{}", describe_missing(place, me.size, "unknown", patience));
}

[[noreturn]] void leave_given_up(const Comer& me, const std::string& text) {
  if (me.rank == 0) std::this_thread::sleep_for(kFarewell);  // the place may end with rank 0, and others read it now
  throw ToldError(text);
}

[[noreturn]] void leave_refused(const Comer& me, const std::string& reason) {
  // The place may end with rank 0, and then others ask rank 0 whether it has reported the failure (base/first_word.h).
  std::this_thread::sleep_for(me.rank == 0 ? kFarewell : kFarewell + kBetweenQuestions);
  throw ConfigError(reason);
}

[[noreturn]] void refuse(MeetingPlace& place, const Comer& me, const std::string& reason) {
  decide(place, kRefused + reason);
  leave_refused(me, reason);
}

void refuse_same_rank(MeetingPlace& place, const Comer& me) {
  if (place.count(fmt::format("times/{}", me.rank)) == 1) return;
  const auto left = place.get(key_of(me.rank), kShortWay);
  const std::string other = left ? left->substr(0, left->find('\n')) : "an unknown host";
  refuse(place, me,
         fmt::format("two processes with RANK={} have come to the meeting at {}, {}; each process needs another RANK, "
                     "and each job another MASTER_PORT",
                     me.rank, place.name(),
                     other == me.host ? "both on " + other : fmt::format("on {} and on {}", other, me.host)));
}

// The first to come leaves its size. Returns whether this rank is the first.
bool compare_sizes(MeetingPlace& place, const Comer& me) {
  if (place.count("first") == 1) {
    place.set("size", fmt::format("{} rank {} ({})", me.size, me.rank, me.host));
    return true;
  }
  const auto first = place.get("size", kShortWay);
  if (!first || std::stoi(*first) == me.size) return false;
  refuse(place, me,
         fmt::format("the ranks at {} have other sizes of the job: {} has WORLD_SIZE={}, and rank {} ({}) has "
                     "WORLD_SIZE={}; start all with the same WORLD_SIZE, and each job with another MASTER_PORT",
                     place.name(), first->substr(first->find(' ') + 1), std::stoi(*first), me.rank, me.host, me.size));
}

std::optional<std::string> wait_and_report(MeetingPlace& place, const Comer& me, milliseconds patience,
                                           milliseconds first_report) {
  WaitReports due(first_report);
  for (milliseconds left = patience; left.count() > 0;) {
    const milliseconds part = std::min(left, due.until_next());
    if (const auto job = place.get("job", part)) return job;
    left -= std::max(part, milliseconds(1));
    if (!due.now()) continue;
    log::info("waiting for ranks {} of {} at {} ({} s of at most {} s)", missing_ranks(place, me.size), me.size,
              place.name(), due.waited().count(), patience.count() / 1000);
  }
  return {};
}

}  // namespace

bool WaitReports::now() {
  if (elapsed() < next_) return false;
  next_ = 2 * elapsed();
  return true;
}

uint64_t meet(MeetingPlace& place, const Comer& me, milliseconds patience, milliseconds first_report) {
  const bool is_first = compare_sizes(place, me);
  refuse_same_rank(place, me);
  place.set(key_of(me.rank), me.host + '\n' + me.text);
  if (place.count("come") == me.size) decide(place, draw_number());
  const auto job = is_first ? wait_and_report(place, me, patience, first_report) : place.get("job", patience);
  const std::string decided = job ? *job : give_up(place, me, patience);
  if (decided.front() == kGivenUp) leave_given_up(me, decided.substr(1));
  if (decided.front() == kRefused) leave_refused(me, decided.substr(1));
  return std::stoull(decided);
}

std::string text_of(MeetingPlace& place, int rank) {
  // Every rank has left its text before the meeting ended, so that it is only the way that takes time.
  if (const auto text = place.get(key_of(rank), kSearch)) return text->substr(text->find('\n') + 1);
  throw std::runtime_error(fmt::format("{} does not have the address of rank {}", place.name(), rank));
}

}  // namespace athanor::comm
