#include "wire/meeting_place.h"

#include <random>
#include <stdexcept>

#include "base/error.h"

namespace athanor::comm {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSearch{60'000};  // 12,288 questions of a millisecond, five times over
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

[[noreturn]] void name_missing(MeetingPlace& place, int size, milliseconds patience) {
  // The first whose patience has ended looks, and the others read what it has found.
  std::optional<std::string> missing;
  if (place.count("searches") == 1) {
    missing = missing_ranks(place, size);
    place.set("missing", *missing);
  } else {
    missing = place.get("missing", kSearch);
  }
  fail<CommError>(
      "these of {} ranks have not come to the meeting at {} within {:.1f} s: {}; look whether their processes were "
      "started, "
      "and whether their hosts reach that address",
      size, place.name(), static_cast<double>(patience.count()) / 1000, missing.value_or("unknown"));
}

}  // namespace

uint64_t meet(MeetingPlace& place, int rank, int size, const std::string& text, milliseconds patience) {
  if (place.count(fmt::format("times/{}", rank)) > 1) {
    fail<CommError>(
        "rank {} has come twice to the meeting at {}: each process needs another RANK, and each job another "
        "MASTER_PORT",
        rank, place.name());
  }
  place.set(key_of(rank), text);
  if (place.count("come") == size) place.set("job", draw_number());
  const auto job = place.get("job", patience);
  if (!job) name_missing(place, size, patience);
  return std::stoull(*job);
}

std::string text_of(MeetingPlace& place, int rank) {
  // Every rank has left its text before the meeting ended, so that it is only the way that takes time.
  if (const auto text = place.get(key_of(rank), kSearch)) return *text;
  throw std::runtime_error(fmt::format("{} does not have the address of rank {}", place.name(), rank));
}

}  // namespace athanor::comm
