#pragma once
// What differs between the kinds of devices, as values. Code takes the value that it needs, and does not ask for the
// kind.

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/tensor.h"

namespace athanor::ops {

/// What is looked at in each step where values are watched.
enum class WatchedDetail {
  kLayers,         ///< what layers return
  kPartsOfLayers,  ///< what attention and feed-forward layers return, too
};

struct DeviceTraits {
  std::string kind;   ///< libtorch's name: "cpu", "cuda"
  std::string place;  ///< "the CPU", "cuda:0"

  // In messages of a rank:
  std::string own;          ///< what it computes on: "this CPU", "the device"
  std::string name;         ///< the device beside its host: "cuda:0"; empty for the CPU
  std::string on_kind;      ///< " on cuda"; empty for the CPU
  std::string on_devices;   ///< what ranks compute on: " on cuda devices"; empty for the CPU
  std::string on_host;      ///< where something is that is not on devices: " on the CPU"; empty for the CPU
  std::string part, parts;  ///< what computed wrong numbers, for one rank and for several: "node", "devices"

  // For bounds on errors, the results that ops store rounded, more than the fewest that any device stores:
  int64_t stored_by_attention;           ///< in forward: probabilities
  int64_t stored_by_attention_backward;  ///< probabilities and their gradients
  int64_t stored_by_experts_backward;    ///< gradients of weights, before they are added in fp32

  /// The host only queues what is computed, and gets numbers when it waits for them.
  bool is_queued;

  // For measurements:
  int64_t large_product;     ///< rows and columns of matrices whose product shows the speed
  int64_t large_copy_bytes;  ///< more than the caches that one of its copies passes through
  WatchedDetail watched;     ///< what costs next to nothing: on a device each sum is a kernel to launch

  // What a run takes of the host's memory, as shares:
  double step_on_host;     ///< the part of a step's memory: parameters, state, activations
  double staging_on_host;  ///< the part of the copies from which checkpoints are written
  /// The number of microbatches of a validation that are sent there together, from pinned memory, which is kept.
  size_t sent_at_once;
  /// The type in which a run computes that asks for none; empty: what its configuration says.
  std::string usual_type;
};
DeviceTraits traits_of(at::Device device);

}  // namespace athanor::ops
