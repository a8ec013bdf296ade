#include "watch/finite_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "ops/device_traits.h"
#include "ops/tensor.h"
#include "ops/transfer.h"
#include "ops/value_statistics.h"
#include "parallel/share.h"
#include "train/stopwatches.h"

namespace athanor::inline watch {
namespace {

using Phase = Observation::Phase;

constexpr int64_t kBlock = 4096;  // sums in a block of memory

// The parts of a layer show no more than the layer itself on a device, where each sum is a kernel to launch.
bool is_part_of_layer(std::string_view place) { return place.ends_with(".self_attn") || place.ends_with(".mlp"); }

}  // namespace

FiniteWatch::FiniteWatch(const Mesh& mesh, at::Device device)
    : leaves_parts_out_(ops::traits_of(device).watched == ops::WatchedDetail::kLayers) {
  for (size_t i = 0; i < kSharingGroups.size(); ++i) {
    groups_[i] = &mesh.group(kSharingGroups[i]);
    groups_[i]->show_sends(this);
  }
}

FiniteWatch::~FiniteWatch() {
  for (comm::Communicator* group : groups_) group->show_sends(nullptr);
}

void FiniteWatch::begin_gradients() {
  entries_.clear();
  watching_ = true;
}

FiniteWatch::Counts FiniteWatch::made() const {
  Counts counts{};
  for (size_t i = 0; i < groups_.size(); ++i) counts[i] = groups_[i]->num_calls();
  return counts;
}

int FiniteWatch::number_of(std::string_view place) {
  const auto known = numbers_.find(place);
  if (known != numbers_.end()) return known->second;
  places_.emplace_back(place);
  return numbers_[places_.back()] = static_cast<int>(places_.size()) - 1;
}

void FiniteWatch::add(const Entry& entry, const Tensor& values) {
  const auto at = static_cast<int64_t>(entries_.size());
  const auto block = static_cast<size_t>(at / kBlock);
  if (block == sums_.size()) sums_.push_back(at::empty({kBlock}, values.options().dtype(at::kFloat)));
  entries_.push_back(entry);
  ops::sum_into(values, sums_[block].select(0, at % kBlock));
}

void FiniteWatch::observe(const Observation& o) {
  // From here on a rank has, and sends over replica groups, sums to which other data ranks have added.
  if (o.phase == Phase::kReduced) watching_ = false;
  if (!watching_ || o.tensor.numel() == 0) return;
  const SecondsInto spent(seconds_);
  if (leaves_parts_out_ && !sees_all_ && is_part_of_layer(o.place)) return;
  add({number_of(o.place), o.phase, o.microbatch, 0, 0, made()}, o.tensor);
}

void FiniteWatch::about_to_send(const comm::Communicator& group, int64_t number, const Tensor& sent, bool for_maximum) {
  if (!watching_ || sent.numel() == 0) return;
  const SecondsInto spent(seconds_);
  const at::NoGradGuard no_grad;
  const auto which = static_cast<size_t>(std::ranges::find(groups_, &group) - groups_.begin());
  Counts counts = made();
  counts[which] = number;  // the call itself counts from the next entry on
  add({-1, Phase::kForward, 0, which, number, counts}, for_maximum ? sent.amax().clamp_min(0) : sent);
}

std::optional<NotFiniteSeen> FiniteWatch::first() const {
  std::vector<Tensor> sums;
  for (const Tensor& block : sums_) sums.push_back(ops::fetch(block).clone());
  const auto finite = [&](size_t at) {
    const auto i = static_cast<int64_t>(at);
    return std::isfinite(sums[static_cast<size_t>(i / kBlock)].const_data_ptr<float>()[i % kBlock]);
  };
  size_t at = 0;
  while (at < entries_.size() && finite(at)) ++at;
  if (at == entries_.size()) return std::nullopt;
  NotFiniteSeen seen;
  seen.made_before = entries_[at].made;
  if (entries_[at].place < 0) seen.sent_in = "group " + groups_[entries_[at].group]->name();
  seen.first_sent.fill(std::numeric_limits<int64_t>::max());
  for (bool placed = false; at < entries_.size(); ++at) {
    if (finite(at)) continue;
    const Entry& entry = entries_[at];
    if (entry.place < 0) {
      seen.first_sent[entry.group] = std::min(seen.first_sent[entry.group], entry.number);
    } else if (!placed) {
      placed = true;
      seen.place = places_[static_cast<size_t>(entry.place)];
      seen.phase = phase_name(entry.phase);
      seen.microbatch = entry.microbatch;
      seen.received = seen.sent_in.empty() && seen.place.starts_with("pipeline.from_stage.");
    }
  }
  return seen;
}

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
    found.device = ops::traits_of(device).name;
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
