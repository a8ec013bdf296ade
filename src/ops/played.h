#pragma once
// A step that is played: its code runs on meta tensors, which have shapes and no memory, and a recorder gets what it
// computes and the memory that it takes, in order.
//
// Ops run in the forms of the place that is played, and make each tensor that these make, scratch memory included. In
// the place of a kernel of the host they report it (played); those of a device report themselves when they are launched
// (device/played_device.h). libtorch's own ops have forms for meta tensors.

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "ops/tensor.h"

namespace athanor::ops {

/// What a kernel does.
struct Op {
  const char* name = "";
  double flops = 0;  ///< multiplications and additions, if it is a matrix product or attention
  int64_t bytes_read = 0, bytes_written = 0;
};

/// Gets what happens in a played step. Memory is that of meta tensors.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void computed(const Op& op) = 0;
  virtual void allocated(int64_t bytes) = 0;
  virtual void freed(int64_t bytes) = 0;
};

/// The numbers that the host reads from tensors in a step.
struct PlayedNumbers {
  /// The part of all choices that each expert of the model gets; they add up to 1. Empty for dense models.
  std::vector<double> expert_shares;
  int64_t choices = 0;       ///< experts of each token
  int64_t vocab_size = 0;    ///< the ids of tokens are spread evenly over the vocabulary
  bool takes_turns = false;  ///< tokens take the experts in turn (moe.balance "forced_uniform"), not by chance
  int threads = 1;           ///< those of a planned host
};

/// Where a played step computes.
enum class PlayedPlace {
  kHost,         ///< CPUs such as those of this process, with its paths of matrix products and its threads
  kPlannedHost,  ///< CPUs with PlayedNumbers::threads threads, where tiles multiply that read bf16 as fp32
  kCuda,         ///< a device with our kernels and libtorch's
  kOther,        ///< a device with libtorch's ops alone
};

inline bool is_device(PlayedPlace place) { return place == PlayedPlace::kCuda || place == PlayedPlace::kOther; }

/// While it lives, what this thread does with meta tensors goes to the recorder. A thread has one at a time. The first
/// one of a process replaces libtorch's allocator of meta tensors, so no other thread may make meta tensors meanwhile.
class Play {
 public:
  /// @param recorder  must outlive this.
  explicit Play(Recorder& recorder, PlayedNumbers numbers = {}, PlayedPlace place = PlayedPlace::kHost);
  ~Play();
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Returns the numbers of this thread's Play. @throws Error if there is none.
const PlayedNumbers& played_numbers();
/// Returns the place of this thread's Play; the host if there is none.
PlayedPlace played_place();

using Tensors = std::initializer_list<std::reference_wrapper<const Tensor>>;

/// Reports a kernel to this thread's recorder, if it has one. Undefined tensors count nothing.
void report(const char* name, Tensors read, Tensors written, double flops = 0);
void report(const Op& op);

/// Returns whether a kernel's result is a meta tensor. Then the kernel is reported, and the caller leaves it out.
inline bool played(const char* name, Tensors read, Tensors written, double flops = 0) {
  if (!written.begin()->get().is_meta()) return false;
  report(name, read, written, flops);
  return true;
}

}  // namespace athanor::ops
