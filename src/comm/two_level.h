#pragma once
// Collectives over a group with a fast network inside each node and a slow one between nodes: most bytes stay inside.
// (A node of this header may also be a supernode.)
//
// The group has n = I · O ranks. `inner` joins the I ranks of one node, `outer` the O ranks that have the same
// position in every node. Together they form a flat group in which the inner position varies fastest: rank = outer
// rank · I + inner rank. A rank sends outside 1/I of the bytes that the flat group's ring or pairwise form would send
// there.
//
// If I is a power of two, an inner sum is a branch of the flat group's tree (communicator.h). So the bits of sums are
// those of the flat group in every type: partial sums of bf16 and fp16 are sent in fp32 and rounded once, at the end.
// For any other I the order of additions differs, and so may the bits, within terms · eps · sum|x| (twice:
// Communicator::all_reduce is as far from the exact sum as these are).

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

/// A sequence of collectives. The first has been started; each of the others starts in `wait` when the one before is
/// complete. Therefore all ranks must call `wait` of their Hops in the same order.
class Hops {
 public:
  Hops() = default;  ///< an empty sequence: complete
  /// The steps are called in order, the first at once. Each returns the collective that must be complete before the
  /// next step.
  explicit Hops(std::vector<std::function<Pending()>> steps);
  /// @throws CommError as Pending::wait does.
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The part of n that a rank holds between reduce_scatter and all_gather.
enum class PartOrder {
  kFlat,        ///< part outer · I + inner, that of the flat group; costs a local copy of everything
  kTransposed,  ///< part inner · O + outer: no copy
};

class TwoLevel {
 public:
  /// Both communicators must outlive it, and it must outlive the Hops that it returns. Tensors are those that
  /// Communicator takes.
  TwoLevel(Communicator& inner, Communicator& outer) : inner_(inner), outer_(outer) {}

  int size() const { return inner_.size() * outer_.size(); }
  int rank() const { return outer_.rank() * inner_.size() + inner_.rank(); }  ///< in the flat group
  int part(PartOrder order) const;
  Communicator& inner() const { return inner_; }
  Communicator& outer() const { return outer_; }

  /// Reduces `x` in place: reduce-scatter inside, all-reduce outside, all-gather inside. Sends 2·b·(I−1)/I inside and
  /// 2·(b/I)·(O−1)/O outside; the outside sums of narrow types are 4 bytes wide.
  Hops all_reduce(const Tensor& x, Reduction reduction = Reduction::kSum);

  /// `in` is n parts of `out`'s size; this rank receives the sum of all ranks' parts `part(order)`. Works inside, then
  /// outside: sends b·(I−1)/I and (b/I)·(O−1)/O (narrow types: 4 bytes wide).
  Hops reduce_scatter(const Tensor& out, const Tensor& in, Reduction reduction = Reduction::kSum,
                      PartOrder order = PartOrder::kFlat);

  /// `out` is n parts of `in`'s size; this rank's is `part(order)`. Works outside, then inside: sends (b/I)·(O−1)/O
  /// outside and b·(I−1)/I inside.
  Hops all_gather(const Tensor& out, const Tensor& in, PartOrder order = PartOrder::kFlat);

  /// Sends part p of `in` to flat rank p in two hops: inside to the rank that has p's inner position, then outside.
  /// Sends b·(I−1)/I inside and b·(O−1)/O outside, in (I−1) + (O−1) messages instead of n−1.
  Hops all_to_all(const Tensor& out, const Tensor& in);

  /// Uneven all-to-all of rows of dim 0: in_rows[p] rows go to flat rank p, in order, and out_rows[p] rows come from
  /// it, ordered by source. It takes the same two hops, after an exchange of the counts inside (8·O bytes to each inner
  /// rank).
  Hops all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows);
  /// Uneven all-to-all with a list of the rows of `in` to send, ordered by destination; a row may be listed for
  /// several. Saves the caller a copy of the rows in that order.
  Hops all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows, std::span<const int64_t> row_ids);

  /// Returns the number of rows that each flat rank will send here: the out_rows that belong to in_rows. Collective
  /// over the flat group; waits.
  std::vector<int64_t> exchange_rows(std::span<const int64_t> in_rows);

 private:
  Hops send_by_place(const Tensor& out, const Tensor& by_place, std::span<const int64_t> out_rows,
                     std::span<const int64_t> in_rows);

  Communicator& inner_;
  Communicator& outer_;
};

}  // namespace athanor::comm
