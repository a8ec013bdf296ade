#include "ops/library_threads.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

// The function of the MKL inside libtorch; null if there is none.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int);

namespace athanor::ops::library {
namespace {

// Inside a parallel region this is the region's own setting, otherwise the thread's. oneDNN follows it.
int set_openmp_threads([[maybe_unused]] int count) {
#if defined(_OPENMP)
  const int before = omp_get_max_threads();
  omp_set_num_threads(count);
  return before;
#else
  return 1;
#endif
}

int set_mkl_threads(int count) { return MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(count) : 0; }

}  // namespace

SingleThreaded::SingleThreaded() : openmp_(set_openmp_threads(1)), mkl_(set_mkl_threads(1)) {}
SingleThreaded::~SingleThreaded() {
  set_openmp_threads(openmp_);
  set_mkl_threads(mkl_);
}

}  // namespace athanor::ops::library
