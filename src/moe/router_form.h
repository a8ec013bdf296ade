#pragma once
// The three forms in which a router computes: on the host; on devices with our kernels, in a few launches; and in torch
// ops, which any device of libtorch runs. Their results are those of the host for the same logits, up to the rounding
// of scores.

#include "base/random.h"
#include "kernels/cuda/balance.h"
#include "moe/balance.h"
#include "moe/router.h"
#include "moe/scores.h"

namespace athanor::moe {

/// The parts of route() that differ. Tensors are where the logits are.
class RouterForm {
 public:
  /// Returns the form for these logits.
  static const RouterForm& of(const Tensor& logits_TE);
  virtual ~RouterForm() = default;

  /// Computes moe::route from the logits, contiguous.
  virtual Routing route(const Tensor& logits_TE, const RouterOptions& options, const kernels::RouterRule& rule,
                        int64_t num_sequences, const Choices* saved) const;

 protected:
  /// Whether the host would have to wait before it could look at a value.
  virtual bool is_queued() const = 0;

  /// See scores.h.
  virtual Scores compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule) const = 0;
  virtual Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule) const = 0;
  virtual Weighed weigh(const Tensor& logits_TE, const Scores& scores, const Tensor& ids_TK, int64_t num_sequences,
                        const kernels::RouterRule& rule) const = 0;

  /// Returns the k best experts of each token, int64, best first; of equal scores the lower index.
  virtual Tensor choose(const Tensor& scores_TE, int64_t k) const = 0;
  /// Returns the choices of each expert in each sequence, fp32 [B, E].
  virtual Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) const = 0;
  /// Returns the choices of each expert that are not dropped, int64 [E].
  virtual Tensor count_taken(const Tensor& ids_TK, int64_t num_experts) const = 0;

  /// Balances whole groups of choices, in place. Returns the numbers of choices moved and dropped, int64 [2].
  /// @param scores_TK  undefined if options.needs_scores() is false.
  virtual Tensor balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK,
                                int64_t num_groups, int64_t num_experts) const = 0;
  /// The same for this rank's part of one group that is spread over ranks. Collective over them.
  virtual Tensor balance_share(const BalanceOptions& options, comm::Communicator& ranks, const Tensor& ids_TK,
                               const Tensor& scores_TK, int64_t num_experts) const = 0;

 private:
  Tensor choosing_scores(const Tensor& logits_TE, const Tensor& scores_TE, const RouterOptions& options,
                         const kernels::RouterRule& rule, int64_t num_sequences) const;
  void decide(const Tensor& logits_TE, const Tensor& scores_TE, const RouterOptions& options,
              const kernels::RouterRule& rule, int64_t num_sequences, Routing& r) const;
  void balance(const RouterOptions& options, const Tensor& scores_TE, int64_t num_sequences, Routing& r) const;
};

class HostRouter : public RouterForm {
  bool is_queued() const override { return false; }
  Scores compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule) const override;
  Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule) const override;
  Weighed weigh(const Tensor& logits_TE, const Scores& scores, const Tensor& ids_TK, int64_t num_sequences,
                const kernels::RouterRule& rule) const override;
  Tensor choose(const Tensor& scores_TE, int64_t k) const override;
  Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) const override;
  Tensor count_taken(const Tensor& ids_TK, int64_t num_experts) const override;
  Tensor balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK,
                        int64_t num_groups, int64_t num_experts) const override;
  Tensor balance_share(const BalanceOptions& options, comm::Communicator& ranks, const Tensor& ids_TK,
                       const Tensor& scores_TK, int64_t num_experts) const override;
};

/// In torch ops. A balancing rule that has no form in them is computed by the host, which waits.
class PortableRouter : public RouterForm {
  bool is_queued() const override { return true; }
  Scores compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule) const override;
  Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule) const override;
  Weighed weigh(const Tensor& logits_TE, const Scores& scores, const Tensor& ids_TK, int64_t num_sequences,
                const kernels::RouterRule& rule) const override;
  Tensor choose(const Tensor& scores_TE, int64_t k) const override;
  Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) const override;
  Tensor count_taken(const Tensor& ids_TK, int64_t num_experts) const override;
  Tensor balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK,
                        int64_t num_groups, int64_t num_experts) const override;
  Tensor balance_share(const BalanceOptions& options, comm::Communicator& ranks, const Tensor& ids_TK,
                       const Tensor& scores_TK, int64_t num_experts) const override;
};

/// With our kernels (kernels/cuda/router.h, noise.h, balance.h): from logits to a routing in a few launches, without a
/// copy and without a wait.
class KernelRouter : public PortableRouter {
 public:
  Routing route(const Tensor& logits_TE, const RouterOptions& options, const kernels::RouterRule& rule,
                int64_t num_sequences, const Choices* saved) const override;
};

/// The noise of a router's logits: logit i of the microbatch gets number `first` + i, times `scale`.
struct NoiseNumbers {
  CounterRandom random;
  int64_t first;
  double scale;
};
NoiseNumbers noise_numbers(const RouterNoise& noise, int64_t logits_of_sequence);

/// Returns the balance groups of choices.
/// @throws ConfigError if they do not fit the sequences; Error if the experts cannot have equal shares of them and the
/// rule needs that.
kernels::cuda::ChoiceGroups choice_groups(const BalanceOptions& options, const Tensor& ids_TK, int64_t num_sequences,
                                          int64_t num_experts);

/// Returns the rows of all ranks, one rank after the other. Collective; each has as many.
Tensor gather_rows(comm::Communicator& ranks, const Tensor& rows);

}  // namespace athanor::moe
