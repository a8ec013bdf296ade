#pragma once
// The forms of what a rank computes for a dispatch: one for the host, and those for devices, where the host only
// queues. A call of Dispatch takes one of them for all its parts.

#include <memory>

#include "moe/dispatch_hop_rows.h"
#include "moe/dispatch_local.h"

namespace athanor::moe {

class DispatchForm {
 public:
  /// Returns the form for these tokens.
  static const DispatchForm& of(const Tensor& x_TD, const DispatchOptions& options);
  virtual ~DispatchForm() = default;

  /// Whether the host does not see what other ranks sent, unless it waits for the device.
  virtual bool is_queued() const = 0;

  /// Makes an Exchange that sends all tokens to all ranks (Optimus §3.1, Algorithm 1). Calls: an all-gather of token
  /// counts, unless they are known to be equal, and one of choices; for each chunk an all-gather and a reduce-scatter;
  /// in backward the same for each chunk, and a reduce-scatter of the weights' gradients.
  ///
  /// With P = Σ over chunks of the most tokens that a rank has in the chunk, a rank sends E − 1 times these amounts: 8
  /// bytes of counts and P · 8K bytes of choices; in forward P · D elements to the experts and P · D back, the same in
  /// backward, and P · 4K bytes of weights' gradients.
  ///
  /// On a device, the host waits for nothing if all ranks have the same number of tokens, and else for their numbers.
  /// Partial sums are exchanged there in one all-to-all for each chunk, with the bytes of a reduce-scatter, and added
  /// here along the tree: the libraries of devices add in another order, and round after each addition.
  virtual std::unique_ptr<Exchange> exchange_by_allgather(const DispatchInput& input) const = 0;

  /// @param room  for devices the rows of each message: those after its last token are padding, with no expert; −1: no
  ///              padding.
  virtual std::unique_ptr<HopRows> hop_rows(const Tokens& tokens, const PeersOfHop& peers, int64_t room) const = 0;

  /// @param first  id of the first of `experts`, as ids_NK names it.
  virtual std::unique_ptr<LocalExperts> local_experts(const ops::ExpertWeights& experts, int64_t first,
                                                      CombineWeights combine) const = 0;
};

class HostForm : public DispatchForm {
 public:
  bool is_queued() const override { return false; }
  std::unique_ptr<Exchange> exchange_by_allgather(const DispatchInput& input) const override;
  std::unique_ptr<HopRows> hop_rows(const Tokens& tokens, const PeersOfHop& peers, int64_t room) const override;
  std::unique_ptr<LocalExperts> local_experts(const ops::ExpertWeights& experts, int64_t first,
                                              CombineWeights combine) const override;
};

class DeviceForm : public DispatchForm {
 public:
  bool is_queued() const override { return true; }
  std::unique_ptr<Exchange> exchange_by_allgather(const DispatchInput& input) const override;
  std::unique_ptr<HopRows> hop_rows(const Tokens& tokens, const PeersOfHop& peers, int64_t room) const override;
  std::unique_ptr<LocalExperts> local_experts(const ops::ExpertWeights& experts, int64_t first,
                                              CombineWeights combine) const override;
};

/// On a device without our kernels: experts are computed in torch ops.
class PortableForm : public DeviceForm {
 public:
  std::unique_ptr<LocalExperts> local_experts(const ops::ExpertWeights& experts, int64_t first,
                                              CombineWeights combine) const override;
};

}  // namespace athanor::moe
