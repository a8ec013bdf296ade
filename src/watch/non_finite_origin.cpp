#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "parallel/share.h"
#include "watch/finite_watch.h"

namespace athanor::inline watch {
namespace {

using nlohmann::json;

int64_t largest_of(comm::Communicator& ranks, int64_t own) {
  const Tensor value = at::full({1}, own, at::kLong);
  ranks.all_reduce(value, comm::Reduction::kMax).wait();
  return value.item<int64_t>();
}

// Collective over each of kSharingGroups. False if another rank sent such a value to this one before it had any.
bool is_origin(const std::optional<NotFiniteSeen>& own, const Mesh& mesh) {
  bool origin = own && !own->received;
  for (size_t i = 0; i < kSharingGroups.size(); ++i) {
    const int64_t none = std::numeric_limits<int64_t>::max();
    const int64_t first_of_group = -largest_of(mesh.host_group(kSharingGroups[i]), -(own ? own->first_sent[i] : none));
    if (own && first_of_group < own->made_before[i]) origin = false;
  }
  return origin;
}

// Where a value lies in the dataflow between stages: no later one can have brought it to an earlier one. A microbatch
// goes forward through the stages, then back.
int64_t order_of(const NotFiniteSeen& seen) {
  constexpr int64_t kStages = 1 << 20, kMicrobatches = int64_t{1} << 32;
  const int64_t stage = std::stoll(seen.place.substr(seen.place.rfind('.') + 1));
  const bool back = seen.phase != phase_name(Observation::Phase::kForward);
  return (back ? kMicrobatches + seen.microbatch : seen.microbatch) * kStages + (back ? kStages - stage : stage);
}

// Collective. For values that no rank made: a message was finite when it was sent, and is not where it was received.
bool is_first_received(const std::optional<NotFiniteSeen>& own, comm::Communicator& all) {
  const int64_t none = std::numeric_limits<int64_t>::max(), order = own && own->received ? order_of(*own) : none;
  const int64_t first = -largest_of(all, -order);
  return order != none && first == order;
}

std::string text_of(const NotFiniteOrigin& origin) {
  const NotFiniteSeen& seen = origin.seen;
  return json{{"host", origin.host},    {"device", origin.device},       {"place", seen.place},
              {"phase", seen.phase},    {"microbatch", seen.microbatch}, {"received", seen.received},
              {"sent_in", seen.sent_in}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

void read_text(const std::string& text, NotFiniteOrigin& origin) {
  const json read = json::parse(text);
  origin.host = read.at("host");
  origin.device = read.at("device");
  NotFiniteSeen& seen = origin.seen;
  seen.place = read.at("place");
  seen.phase = read.at("phase");
  seen.microbatch = read.at("microbatch");
  seen.received = read.at("received");
  seen.sent_in = read.at("sent_in");
}

}  // namespace

std::optional<NotFiniteOrigin> find_origin(const std::optional<NotFiniteSeen>& own, const Mesh& mesh,
                                           at::Device device) {
  comm::Communicator& all = mesh.host_group(GroupKind::kWorld);
  bool origin = is_origin(own, mesh);
  if (largest_of(all, origin ? 1 : 0) == 0) origin = is_first_received(own, all);
  const int64_t lowest = all.size() - largest_of(all, origin ? all.size() - all.rank() : 0);
  if (lowest == all.size()) return std::nullopt;
  const Tensor count = at::full({1}, origin ? 1 : 0, at::kLong);
  all.all_reduce(count).wait();
  NotFiniteOrigin found;
  found.rank = static_cast<int>(lowest);
  found.num_ranks = static_cast<int>(count.item<int64_t>());
  found.is_here = origin;
  std::string text;
  if (all.rank() == found.rank) {
    found.seen = *own;
    found.host = mesh.world().host();
    if (!device.is_cpu()) found.device = device.str();
    text = text_of(found);
  }
  read_text(broadcast_text(all, text, wait_for_pending, found.rank), found);
  return found;
}

std::string NotFiniteOrigin::text(int num_ranks_of_job) const {
  std::string who = num_ranks_of_job > 1
                        ? fmt::format("on rank {} ({}{}{})", rank, host, device.empty() ? "" : ", ", device)
                        : "here";
  if (num_ranks > 1)
    who += fmt::format(" and, independently, on {} other rank{}", num_ranks - 1, num_ranks > 2 ? "s" : "");
  std::string what = "what it sent";
  if (!seen.place.empty()) {
    const std::string when =
        seen.microbatch < 0 ? seen.phase : fmt::format("microbatch {}, {}", seen.microbatch, seen.phase);
    what = fmt::format("{} of {}", when, seen.place);
  }
  if (!seen.sent_in.empty()) what += fmt::format(" (in what it sent to {})", seen.sent_in);
  if (seen.received) what += " (it was sent finite)";
  return fmt::format("the first value that is not finite came up {}: {}", who, what);
}

}  // namespace athanor::inline watch
