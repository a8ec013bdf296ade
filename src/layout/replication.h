#pragma once
// The replication kind of a parameter: which ranks hold the same part of it, and how their gradients become one. All
// parameters of one kind are summed, sharded, bucketed and counted in the same way.

#include <array>
#include <compare>
#include <optional>

#include "layout/layout.h"

namespace athanor::inline layout {

/// Each kind is held by the data ranks of data_ranks() that have the same tensor and pipeline coordinates, and its
/// gradient is summed over them. Some kinds are also held by a replica group, which are tensor or pipeline ranks:
///
///   kind          replica group  each holder's gradient, after the sum over data ranks
///   dense         –              the gradient of its slice
///   expert        –              the gradient of its slice of its experts
///   replicated    kTensor        the whole gradient, which every tensor rank has computed (routers, norms)
///   partial       kTensor        a partial sum over its heads (QK-norm of each head) or over its tokens (norms under
///                                sequence_parallel)
///   key_value     kKeyValue      a partial sum over its query heads (keys and values that several ranks hold)
///   tied          kTied          a partial sum: the part from the embedding, or that from the output
/// If the gradients are partial sums, they are added up over the replica group.
struct Replication {
  enum Kind { kDense, kExpert, kKeyValue, kPartial, kReplicated, kTied };

  constexpr Replication(Kind value = kDense) : kind(value) {}  // NOLINT: a kind stands for itself
  constexpr auto operator<=>(const Replication&) const = default;

  constexpr bool is_expert() const { return kind == kExpert; }
  /// Returns the data ranks over which the gradient is summed: kData, or kExpertData for experts.
  constexpr GroupKind data_ranks() const { return is_expert() ? GroupKind::kExpertData : GroupKind::kData; }
  /// Returns the replica group.
  std::optional<GroupKind> replicas() const;
  /// Returns true if the gradients of the replica group are partial sums, false if they are equal.
  bool replicas_add() const;
  const char* name() const;

  Kind kind;
};

inline constexpr std::array<Replication, 6> kReplications = {Replication::kDense,      Replication::kExpert,
                                                             Replication::kKeyValue,   Replication::kPartial,
                                                             Replication::kReplicated, Replication::kTied};

}  // namespace athanor::inline layout
