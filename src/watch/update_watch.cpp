#include "watch/update_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace athanor::inline watch {
namespace {

struct FaultKind {
  const char* name;
  double ParameterUpdate::*amount;  // a parameter is worse, the larger this is
  bool (*is_at_fault)(const ParameterUpdate&);
  std::string (*how_much)(const ParameterUpdate&);
  const char *before_names, *after_names;  // what is wrong with the parameters, and the remedy
};

// A comparison that is true for NaN, too.
bool above(double value, double limit) { return !(value <= limit); }

bool loses(const ParameterUpdate& p) { return above(p.lost_share, UpdateWatch::kMostLost); }

std::string percent(double share) { return fmt::format("{:.3g}% of its elements", 100 * share); }

const std::array<FaultKind, UpdateWatch::kNumKinds> kFaultKinds = {{
    {"lost", &ParameterUpdate::lost_share, loses, [](const ParameterUpdate& p) { return percent(p.lost_share); },
     "fp32 loses the updates of",
     "they are below half of the spacing of fp32 at the weights: raise the learning rate (optimizer.lr, or that of the "
     "group), or let the schedule end earlier"},
    {"still", &ParameterUpdate::updates_per_move,
     // What fp32 loses is told as such.
     [](const ParameterUpdate& p) { return p.updates_per_move > UpdateWatch::kMostUpdatesPerMove && !loses(p); },
     [](const ParameterUpdate& p) { return fmt::format("a weight moves once in {:.3g} updates", p.updates_per_move); },
     "bf16 weights stand still in",
     "their masters move, and forward sees nothing of it: raise the learning rate (optimizer.lr, or that of the "
     "group), "
     "or train with train.dtype = \"float32\""},
    {"underflow", &ParameterUpdate::underflow_share,
     [](const ParameterUpdate& p) { return above(p.underflow_share, UpdateWatch::kMostUnderflow); },
     [](const ParameterUpdate& p) { return percent(p.underflow_share); }, "second moments underflow in",
     "the gradients are below 1e-17 or so, whose squares fp32 does not hold: find what cuts these parameters off from "
     "the "
     "loss, such as weights that are zero or a router that does not choose them"},
    {"not_finite", &ParameterUpdate::not_finite, [](const ParameterUpdate& p) { return above(p.not_finite, 0); },
     [](const ParameterUpdate& p) { return fmt::format("{} values", p.not_finite); },
     "weights or optimizer state are not finite in",
     "they stay so: continue from a checkpoint before this step (checkpoint.resume), with a smaller "
     "optimizer.max_grad_norm or learning rate"},
    {"diverged", &ParameterUpdate::orthogonality,
     [](const ParameterUpdate& p) { return above(p.orthogonality, UpdateWatch::kMostOrthogonality); },
     [](const ParameterUpdate& p) {
       return std::isnan(p.orthogonality)
                  ? std::string("not a number")
                  : fmt::format("{:.3g} times the norm of an orthogonal matrix", p.orthogonality);
     },
     "Newton and Schulz's iteration diverges for",
     "use the default optimizer.newton_schulz_coefficients, or newton_schulz_dtype = \"float32\""},
}};

// NaN is worse than anything.
double badness(double amount) { return std::isnan(amount) ? std::numeric_limits<double>::infinity() : amount; }

using Updates = std::vector<const ParameterUpdate*>;

void sort_by(Updates& updates, double ParameterUpdate::*amount) {
  std::ranges::stable_sort(updates, std::greater<>(), [&](const auto* p) { return badness(p->*amount); });
}

UpdateFault describe(int64_t step, const FaultKind& kind, const Updates& faulty) {
  constexpr size_t kMostInText = 4;
  UpdateFault fault{kind.name, {}, ""};
  std::vector<std::string> named;
  for (const ParameterUpdate* each : faulty) {
    named.push_back(fmt::format("{} ({})", each->name, kind.how_much(*each)));
    if (fault.parameters.size() < UpdateWatch::kMostNamed) fault.parameters.push_back(each->name);
  }
  fault.text =
      fmt::format("step {}: {} {}: {}", step, kind.before_names, join_first(named, kMostInText), kind.after_names);
  return fault;
}

std::vector<LargestOf> largest_by(const std::vector<ParameterUpdate>& updates, double ParameterUpdate::*amount) {
  Updates all;
  for (const ParameterUpdate& each : updates)
    if (above(each.*amount, 0)) all.push_back(&each);
  sort_by(all, amount);
  std::vector<LargestOf> largest;
  for (const ParameterUpdate* each : all) {
    if (largest.size() == UpdateMetrics::kMostListed) break;
    largest.push_back({each->name, each->*amount});
  }
  return largest;
}

}  // namespace

std::vector<UpdateFault> UpdateWatch::took(int64_t step, const std::vector<ParameterUpdate>& updates) {
  std::vector<UpdateFault> faults;
  if (updates.empty()) return faults;
  for (size_t k = 0; k < kNumKinds; ++k) {
    const FaultKind& kind = kFaultKinds[k];
    Updates faulty;
    std::set<std::string> names;
    for (const ParameterUpdate& each : updates) {
      if (!kind.is_at_fault(each)) continue;
      faulty.push_back(&each);
      names.insert(each.name);
    }
    const bool has_new = !std::ranges::includes(known_[k], names);
    known_[k] = std::move(names);
    if (!has_new) continue;
    sort_by(faulty, kind.amount);
    faults.push_back(describe(step, kind, faulty));
  }
  return faults;
}

UpdateMetrics largest_of(const std::vector<ParameterUpdate>& updates) {
  return {largest_by(updates, &ParameterUpdate::lost_share), largest_by(updates, &ParameterUpdate::still_share),
          largest_by(updates, &ParameterUpdate::underflow_share), largest_by(updates, &ParameterUpdate::not_finite),
          largest_by(updates, &ParameterUpdate::orthogonality)};
}

}  // namespace athanor::inline watch
