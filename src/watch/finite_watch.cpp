#include "watch/finite_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/communicator.h"
#include "ops/tensor.h"
#include "ops/transfer.h"
#include "train/stopwatches.h"

namespace athanor::inline watch {
namespace {

using Phase = Observation::Phase;

constexpr int64_t kBlock = 4096;  // sums in a block of memory

// The parts of a layer show no more than the layer itself on a device, where each sum is a kernel to launch.
bool is_part_of_layer(std::string_view place) { return place.ends_with(".self_attn") || place.ends_with(".mlp"); }

}  // namespace

FiniteWatch::FiniteWatch(const Mesh& mesh) : on_device_(false) {
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
  on_device_ = !values.is_cpu();
  const auto at = static_cast<int64_t>(entries_.size());
  const auto block = static_cast<size_t>(at / kBlock);
  if (block == sums_.size()) sums_.push_back(at::empty({kBlock}, values.options().dtype(at::kFloat)));
  entries_.push_back(entry);
  Tensor sum = sums_[block].select(0, at % kBlock);
  if (on_device_) {
    at::sum_out(sum, values.reshape({-1}), 0, /*keepdim=*/false, at::kFloat);
  } else {
    sum.fill_(values.sum());  // in the type of the values: libtorch converts those of 16 bits one by one otherwise
  }
}

void FiniteWatch::observe(const Observation& o) {
  // From here on a rank has, and sends over replica groups, sums to which other data ranks have added.
  if (o.phase == Phase::kReduced) watching_ = false;
  if (!watching_ || o.tensor.numel() == 0) return;
  const SecondsInto spent(seconds_);
  if (!o.tensor.is_cpu() && !sees_parts_ && is_part_of_layer(o.place)) return;
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

}  // namespace athanor::inline watch
