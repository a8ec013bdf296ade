#pragma once
// Runs calls of libtorch's library on one thread each, so that their bits do not depend on the number of threads: a
// call that may use several divides its sums by their number.

#include "ops/taken_in_turn.h"

namespace athanor::ops::library {

/// During its lifetime, the library's products on this thread use no other. Being in a parallel region is not enough:
/// both of libtorch's libraries divide a sum by the threads that they could have outside of it.
class SingleThreaded {
 public:
  SingleThreaded();
  ~SingleThreaded();
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int openmp_, mkl_;
};

/// Calls f(i) for each i < count, on every thread; a thread that has finished one takes the next.
template <class F>
void for_each_single_threaded(int64_t count, F f) {
  struct Guard {
    const at::NoGradGuard no_grad{};
    const SingleThreaded single_threaded{};
  };
  for_each_in_turn<Guard>(count, [&](int64_t i, int64_t) { f(i); });
}

}  // namespace athanor::ops::library
