#pragma once
// Runs calls of libtorch's library on one thread each, so that their bits do not depend on the number of threads: a
// call that may use several divides its sums by their number.

#include <atomic>

#include "ops/tensor.h"

namespace athanor::ops::library {

/// During its lifetime, the library's products on this thread use no other. Being in a parallel region is not enough:
/// both of libtorch's libraries divide a sum by the threads that they could have outside of it.
class Alone {
 public:
  Alone();
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  int openmp_, mkl_;
};

/// Calls f(i) for each i < count, on every thread; a thread that has finished one takes the next.
template <class F>
void for_each_alone(int64_t count, F f) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), count), 1, [&](int64_t, int64_t) {
    const at::NoGradGuard no_grad;
    const Alone alone;
    for (int64_t i = next++; i < count; i = next++) f(i);
  });
}

}  // namespace athanor::ops::library
