#pragma once
// Runs a kernel's body: on a device, or by loops on the host. This is the only file with an #ifdef for the two.
//
// A body is a lambda `[=] ATHANOR_BODY(...) { ... }` that captures by value. It computes either one index
// (`for_each_index`) or one work item of a team of threads (`for_each_team`). The threads of a team wait for each other
// only in Team's `each`, `read`, `reduce`, `sum`, `max` and `scan`: when one of these returns, every thread has called
// f, and what f wrote is visible to the team. So the host may run the threads one after the other within such a call.
// Sums of a team have one fixed order, which is the same on both. Files are compiled without contraction, so the host
// gives the device's bits, except in libm's functions. Between such calls a team keeps values in memory that its
// threads share (Team::shared), and each thread keeps its own in PerThread.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define ATHANOR_BODY __host__ __device__
#else
#define ATHANOR_BODY
#endif

namespace athanor::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // threads of a block, unless a team is larger

/// @throws std::runtime_error always: the message has the kernel's name and the reason.
[[noreturn]] void fail_launch(const char* kernel, const char* why);
/// @throws std::runtime_error if cudaGetLastError reports an error of the launch that was just made.
void check_launch(const char* kernel);

ATHANOR_INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

template <class V>
struct Sum {
  ATHANOR_INLINE V operator()(V a, V b) const { return a + b; }
};
template <class V>
struct Max {
  ATHANOR_INLINE V operator()(V a, V b) const { return b > a ? b : a; }
};

/// A team of kSize threads: a warp, or a whole block of several warps.
template <int kSize>
class Team {
  static_assert(kSize == kWarp || (kSize % kWarp == 0 && kSize <= 1024));

 public:
  ATHANOR_INLINE explicit Team(int64_t index) : index_(index) {}
  ATHANOR_INLINE int64_t index() const { return index_; }
  static constexpr int size() { return kSize; }

  /// Calls f(thread) on each thread, 0 to kSize − 1, then waits at a barrier.
  template <class F>
  ATHANOR_INLINE void each(F f) const {
#ifdef __CUDA_ARCH__
    f(thread());
    sync();
#else
    for (int t = 0; t < kSize; ++t) f(t);
#endif
  }

  /// Returns *from to every thread. A write in a later `each` cannot overtake it, as it could a plain read.
  template <class V>
  ATHANOR_INLINE V read(const V* from) const {
    const V value = *from;
#ifdef __CUDA_ARCH__
    sync();
#endif
    return value;
  }

  /// Combines all f(thread) by `op` and returns the result to every thread: a binary tree in each warp, then the warps
  /// in order.
  template <class V, class Op, class F>
  ATHANOR_INLINE V reduce(Op op, F f) const {
#ifdef __CUDA_ARCH__
    V value = f(thread());
    for (int width = kWarp / 2; width > 0; width /= 2) value = op(value, __shfl_xor_sync(~0u, value, width));
    if constexpr (kSize > kWarp) {
      __shared__ V warps[kSize / kWarp];
      __syncthreads();  // the previous result has been read
      if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
      __syncthreads();
      value = warps[0];
      for (int w = 1; w < kSize / kWarp; ++w) value = op(value, warps[w]);
    } else {
      __syncwarp();
    }
    return value;
#else
    V values[kSize];
    for (int t = 0; t < kSize; ++t) values[t] = f(t);
    for (int warp = 0; warp < kSize; warp += kWarp) {
      for (int width = kWarp / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; ++l) values[warp + l] = op(values[warp + l], values[warp + l + width]);
      }
      if (warp > 0) values[0] = op(values[0], values[warp]);
    }
    return values[0];
#endif
  }

  template <class V, class F>
  ATHANOR_INLINE V sum(F f) const {
    return reduce<V>(Sum<V>(), f);
  }
  template <class V, class F>
  ATHANOR_INLINE V max(F f) const {
    return reduce<V>(Max<V>(), f);
  }

  /// Calls take(thread, Σ f(t) over t < thread) on each thread, and returns Σ f(t) over all threads to every thread.
  /// For integers, whose sums have no order.
  template <class V, class F, class Take>
  ATHANOR_INLINE V scan(F f, Take take) const {
#ifdef __CUDA_ARCH__
    const V own = f(thread());
    const int lane = thread() % kWarp;
    V up_to = own;  // the sum over the warp's threads up to this one
    for (int width = 1; width < kWarp; width *= 2) {
      const V before = __shfl_up_sync(~0u, up_to, width);
      if (lane >= width) up_to += before;
    }
    V total = __shfl_sync(~0u, up_to, kWarp - 1), before = 0;
    if constexpr (kSize > kWarp) {
      __shared__ V warps[kSize / kWarp];
      __syncthreads();  // the previous totals have been read
      if (lane == kWarp - 1) warps[thread() / kWarp] = up_to;
      __syncthreads();
      total = 0;
      for (int w = 0; w < kSize / kWarp; ++w) {
        if (w == thread() / kWarp) before = total;
        total += warps[w];
      }
    }
    take(thread(), before + up_to - own);
    sync();
    return total;
#else
    V before = 0;
    for (int t = 0; t < kSize; ++t) {
      const V own = f(t);
      take(t, before);
      before += own;
    }
    return before;
#endif
  }

  /// Returns memory for kCount values that the team shares, another for each kTag. A team finds in it what it wrote,
  /// and at first anything.
  template <class V, int kCount, int kTag>
  ATHANOR_INLINE V* shared() const {
    static_assert(kSize > kWarp, "the warps of a block would share it");
#ifdef __CUDA_ARCH__
    __shared__ V memory[kCount];
#else
    thread_local V memory[kCount];
#endif
    return memory;
  }

  /// Adds `value`, which is the same on every thread of the team, to *to once (not once for each thread), atomically
  /// with respect to other teams. It does not wait. It is for integers, since the order of teams is not fixed.
  ATHANOR_INLINE void add_once(int64_t* to, int64_t value) const {
#ifdef __CUDA_ARCH__
    if (thread() == 0) atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
    *to += value;
#endif
  }

 private:
#ifdef __CUDA_ARCH__
  ATHANOR_INLINE static int thread() { return static_cast<int>(threadIdx.x) % kSize; }
  ATHANOR_INLINE static void sync() {
    if constexpr (kSize == kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
#endif
  int64_t index_;
};

/// A value of each thread of a team, zero at first: registers on a device.
template <class V, int kSize>
class PerThread {
 public:
  ATHANOR_INLINE V& of(int thread) {
#ifdef __CUDA_ARCH__
    (void)thread;
    return value_;
#else
    return values_[thread];
#endif
  }

 private:
#ifdef __CUDA_ARCH__
  V value_ = {};
#else
  V values_[kSize] = {};
#endif
};

#ifdef __CUDACC__
template <class Body>
__global__ void __launch_bounds__(kThreads) run_indices(int64_t count, Body body) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) body(i);
}

template <int kSize, class Body>
__global__ void __launch_bounds__(kSize > kThreads ? kSize : kThreads) run_teams(int64_t count, Body body) {
  // Warps beyond the last team leave completely, so the shuffles of the others do not change. A larger team is its
  // block.
  const int64_t team = kSize == kWarp ? static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp
                                      : static_cast<int64_t>(blockIdx.x);
  if (team < count) body(Team<kSize>(team));
}

/// Returns the number of blocks for `count` items with `per_block` items each.
/// @throws std::runtime_error if it is above 2^31 − 1, the limit of a grid's first dimension.
inline unsigned blocks_of(const char* kernel, int64_t count, int64_t per_block) {
  const int64_t blocks = (count + per_block - 1) / per_block;
  if (blocks > 0x7FFFFFFF) fail_launch(kernel, "more blocks than a grid can have");
  return static_cast<unsigned>(blocks);
}
#endif

/// Runs body(i) for each i in [0, count), in any order. On a device it returns after the launch; on the host, when all
/// are done. Nothing is launched if `count` is 0.
/// @param kernel  the name in messages of errors.
/// @throws std::runtime_error if the launch fails, or if this build has no device code.
template <class Body>
void for_each_index(const Stream& stream, const char* kernel, int64_t count, Body body) {
  if (count <= 0) return;
  if (stream.is_host()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  if (auto* device = stream.guarded()) {
    device->submit(kernel, [=] {
      for (int64_t i = 0; i < count; ++i) body(i);
    });
    return;
  }
#ifdef __CUDACC__
  run_indices<<<blocks_of(kernel, count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream.handle())>>>(count,
                                                                                                               body);
  check_launch(kernel);
#else
  fail_launch(kernel, "this build has no CUDA kernels: nvcc was not found when it was configured");
#endif
}

/// Runs body(Team<kSize>(i)) for each i in [0, count), in any order. Every thread of the team runs the body on a
/// device, and one thread does on the host. So a body writes to memory only in `each`, in `add_once`, and in f of the
/// other calls. For everything else see for_each_index.
template <int kSize, class Body>
void for_each_team(const Stream& stream, const char* kernel, int64_t count, Body body) {
  if (count <= 0) return;
  if (stream.is_host()) {
    for (int64_t i = 0; i < count; ++i) body(Team<kSize>(i));
    return;
  }
  if (auto* device = stream.guarded()) {
    device->submit(kernel, [=] {
      for (int64_t i = 0; i < count; ++i) body(Team<kSize>(i));
    });
    return;
  }
#ifdef __CUDACC__
  constexpr int kBlock = kSize == kWarp ? kThreads : kSize;
  run_teams<kSize><<<blocks_of(kernel, count, kBlock / kSize), kBlock, 0, static_cast<cudaStream_t>(stream.handle())>>>(
      count, body);
  check_launch(kernel);
#else
  fail_launch(kernel, "this build has no CUDA kernels: nvcc was not found when it was configured");
#endif
}

}  // namespace athanor::kernels::cuda
