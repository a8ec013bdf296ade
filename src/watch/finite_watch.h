#pragma once
// Finds out where the first value of a step that is not finite came up: in what, and on which rank.
//
// A NaN crosses tensor, expert and pipeline groups before any loss is summed, so after the step all ranks have some.
// Each rank therefore adds up, in each step, the tensors that its observers see and what it is about to send, in the
// order in which it makes them. A sum is finite if all of its terms are (and do not overflow together). Nothing else is
// done unless the guard refuses the step. Then a rank is an origin if the first of its sums that is not finite comes
// before anything that could have brought it there:
//   - this sum is not that of a tensor which came from another pipeline stage; and
//   - in each group in which it takes part, no rank sent such a value in a collective that this rank had made by then.
// If no rank is an origin, a message between stages was finite when it was sent and not where it arrived: the first of
// these ranks in the order of the dataflow is taken. Numbers of collectives are the same on all ranks of a group, so
// this takes one minimum for each group.
//
// The cost is one pass over each of these tensors: an addition for each element, where a layer makes some hundreds to
// thousands of multiplications.
// Source: Optimus §4 (soft failures); the rule is ours.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/watches.h"
#include "parallel/mesh.h"
#include "parallel/observer.h"

namespace athanor::inline watch {

/// The groups whose sends carry values from one rank's part of a microbatch to another's.
inline constexpr std::array kSharingGroups = {GroupKind::kTensor, GroupKind::kExpert, GroupKind::kBalance};

/// The first value of a rank that is not finite, in the order in which the rank made its values.
struct NotFiniteSeen {
  std::string place;      ///< the first tensor's that was observed with one (parallel/observer.h); "" if none was
  std::string phase;      ///< that tensor's, for example "backward"
  int microbatch = 0;     ///< that tensor's, from 0; Observation::kAllMicrobatches for a bucket
  bool received = false;  ///< it came from another pipeline stage
  std::string sent_in;    ///< if it was sent before it was observed: "group tensor"
  /// For each of kSharingGroups: the first collective in which this rank sent a value that is not finite (INT64_MAX:
  /// none), and how many collectives it had made when its first such value came up.
  std::array<int64_t, kSharingGroups.size()> first_sent = {}, made_before = {};
};

class FiniteWatch : public Observer, public comm::SendWatch {
 public:
  /// Sees what the mesh's groups send, until it is destroyed. On a device each sum is one kernel, which is never waited
  /// for, and the parts of layers (attention and feed-forward) are left out.
  /// @param device  of this rank's model.
  explicit FiniteWatch(const Mesh& mesh, at::Device device = at::kCPU);
  ~FiniteWatch() override;
  FiniteWatch(const FiniteWatch&) = delete;
  FiniteWatch& operator=(const FiniteWatch&) = delete;

  void begin_gradients() override;
  void end_gradients() override { watching_ = false; }
  void observe(const Observation& observation) override;
  void about_to_send(const comm::Communicator& group, int64_t number, const Tensor& sent, bool for_maximum) override;

  /// Whether the parts of layers are left out.
  bool leaves_parts_out() const { return leaves_parts_out_; }
  /// Adds up what is left out as well from now on, or no longer. For a step that is computed again.
  void see_all(bool see) { sees_all_ = see; }

  /// Returns the seconds that this rank has spent on it so far; on a device those of the host.
  double seconds() const { return seconds_; }

  /// Returns the first value of the last step that is not finite; nothing if every sum is finite. Waits for a device.
  /// Sends nothing.
  std::optional<NotFiniteSeen> first() const;

 private:
  using Counts = std::array<int64_t, kSharingGroups.size()>;
  // One sum, in the order of the rank's work.
  struct Entry {
    int place;  // in places_; −1: a collective
    Observation::Phase phase;
    int microbatch;
    size_t group;    // for a collective
    int64_t number;  // likewise
    Counts made;     // collectives of each group that were made before
  };
  void add(const Entry& entry, const Tensor& values);
  int number_of(std::string_view place);
  Counts made() const;

  std::array<comm::Communicator*, kSharingGroups.size()> groups_;
  bool watching_ = false, leaves_parts_out_, sees_all_ = false;
  double seconds_ = 0;
  std::vector<Entry> entries_;
  std::vector<Tensor> sums_;  // blocks of fp32 numbers, one for each entry; kept from step to step
  std::map<std::string, int, std::less<>> numbers_;
  std::vector<std::string> places_;
};

/// Where the first value that is not finite came up, as all ranks know it (except is_here).
struct NotFiniteOrigin {
  int rank = 0;              ///< the lowest of the ranks
  int num_ranks = 1;         ///< how many ranks had one that came from no other rank
  bool is_here = false;      ///< whether this rank is one of them
  std::string host, device;  ///< those of that rank
  NotFiniteSeen seen;        ///< by that rank

  /// Returns "rank 3 (node7): microbatch 2, forward of model.layers.3.mlp"; ranks are named if there are several.
  std::string text(int num_ranks_of_job) const;
};

/// Finds the origin of what the ranks have seen; nothing if no rank has seen anything. Collective over the mesh: a
/// minimum over each of kSharingGroups, two sums over the world, and one text.
/// @param device  of this rank's model.
std::optional<NotFiniteOrigin> find_origin(const std::optional<NotFiniteSeen>& own, const Mesh& mesh,
                                           at::Device device);

}  // namespace athanor::inline watch
