#pragma once
// Collectives over a group that a fast network joins inside and a slow one outside: most bytes stay inside.
//
// n = I · O ranks. `inner` joins the I ranks of one place, `outer` the O ranks that stand at the same position of every
// place. Together they are a flat group in which the inner position varies fastest: rank = outer rank · I + inner rank.
// The bytes that a rank sends outside are 1/I of what the flat group's ring or pairwise form would send there.
//
// Sums: where I is a power of two, an inner sum is a branch of the flat group's tree (communicator.h), so that the bits
// are those of the flat group, in every type: partial sums of bf16 and fp16 cross in fp32 and are rounded once, at the
// end. For any other I the order of additions differs, and so may the bits, within terms · eps · sum|x| (twice:
// Communicator::all_reduce is as far from the exact sum as we are).

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

/// Collectives in a row: the first has been started, each other begins when the one before is over, in `wait`. So all
/// ranks wait for what they started in the same order.
class Hops {
 public:
  Hops() = default;  ///< of nothing: over
  /// The steps are taken in turn, the first at once; each answers what has to be over before the next.
  explicit Hops(std::vector<std::function<Pending()>> steps);
  /// @throws CommError as Pending::wait does.
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Which part of n a rank holds between reduce_scatter and all_gather.
enum class PartOrder {
  kFlat,        ///< part outer · I + inner: the flat group's; costs a local copy of everything
  kTransposed,  ///< part inner · O + outer: no copy
};

class TwoLevel {
 public:
  /// Both must outlive it. Tensors are what Communicator takes.
  TwoLevel(Communicator& inner, Communicator& outer) : inner_(inner), outer_(outer) {}

  int size() const { return inner_.size() * outer_.size(); }
  int rank() const { return outer_.rank() * inner_.size() + inner_.rank(); }  ///< in the flat group
  int part(PartOrder order) const;
  Communicator& inner() const { return inner_; }
  Communicator& outer() const { return outer_; }

  /// In place. Reduce-scatter inside, all-reduce outside, all-gather inside.
  /// Sends 2·b·(I−1)/I inside and 2·(b/I)·(O−1)/O outside; of narrow types the sums outside are 4 bytes wide.
  Hops all_reduce(const Tensor& x, Reduction reduction = Reduction::kSum);

  /// `in` is n parts of `out`'s size; this rank gets the sum of all parts `part(order)`. Inside, then outside: sends
  /// b·(I−1)/I and (b/I)·(O−1)/O (of narrow types 4 bytes wide).
  Hops reduce_scatter(const Tensor& out, const Tensor& in, Reduction reduction = Reduction::kSum,
                      PartOrder order = PartOrder::kFlat);

  /// `out` is n parts of `in`'s size, of which this rank's is `part(order)`. Outside, then inside: sends (b/I)·(O−1)/O
  /// outside and b·(I−1)/I inside.
  Hops all_gather(const Tensor& out, const Tensor& in, PartOrder order = PartOrder::kFlat);

  /// Part p of `in` goes to flat rank p. In two hops: inside to the rank that stands where p stands, then across. Sends
  /// b·(I−1)/I inside and b·(O−1)/O outside, in (I−1) + (O−1) messages instead of n−1.
  Hops all_to_all(const Tensor& out, const Tensor& in);

  /// Rows of dim 0: in_rows[p] of them go to flat rank p, in order, and out_rows[p] come from it, ordered by source.
  /// The same hops, after an exchange of the counts inside (8·O bytes to each inner rank).
  Hops all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows);
  /// With a list of the rows of `in` that go out, by destination; a row may be named for many. Spares the caller the
  /// copy in which they stand in that order.
  Hops all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                  std::span<const int64_t> in_rows, std::span<const int64_t> row_ids);

  /// What each flat rank will send here: the out_rows that belong to in_rows. Waits.
  std::vector<int64_t> exchange_rows(std::span<const int64_t> in_rows);

 private:
  Hops send_by_place(const Tensor& out, const Tensor& by_place, std::span<const int64_t> out_rows,
                     std::span<const int64_t> in_rows);

  Communicator& inner_;
  Communicator& outer_;
};

}  // namespace athanor::comm
