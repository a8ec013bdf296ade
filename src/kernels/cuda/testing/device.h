#pragma once
// Runs one test body on every side that a kernel can run on: the CPU's own kernels, the bodies of the CUDA kernels on
// the host, and a CUDA device. Inputs are copied to that side and results back. A side that does not exist here is
// skipped with the reason.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"
#include "kernels/error_bound.h"

namespace athanor::kernels::test {

enum class Place { kCpu, kCudaOnHost, kCuda };

inline std::string name_of(Place place) {
  return place == Place::kCpu ? "Cpu" : place == Place::kCudaOnHost ? "CudaOnHost" : "Cuda";
}

/// Memory of one side, copied from a vector and back.
template <class T>
class Buffer {
 public:
  Buffer(const cuda::Stream& stream, const std::vector<T>& values)
      : stream_(stream), count_(values.size()), data_(static_cast<T*>(cuda::allocate(stream, bytes()))) {
    cuda::copy_in(stream_, data_, values.data(), bytes());
  }
  ~Buffer() { cuda::release(stream_, data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    cuda::copy_out(stream_, result.data(), data_, bytes());
    return result;
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }
  cuda::Stream stream_;
  size_t count_;
  T* data_;
};

class OnEachPlace : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam() != Place::kCuda) return;
    if (const char* why = cuda::why_no_device()) GTEST_SKIP() << "no CUDA device: " << why;
  }
  bool is_cpu() const { return GetParam() == Place::kCpu; }
  cuda::Stream stream() const {
    return GetParam() == Place::kCuda ? cuda::Stream::device(nullptr) : cuda::Stream::host();
  }
  template <class T>
  Buffer<T> put(const std::vector<T>& values) const {
    return Buffer<T>(stream(), values);
  }
};

/// For tests whose reference is the CPU's kernel, which need not be compared with itself.
#define ATHANOR_ON_CUDA_PLACES(Suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(, Suite, ::testing::Values(Place::kCudaOnHost, Place::kCuda), \
                           [](const ::testing::TestParamInfo<Place>& place) { return name_of(place.param); })

#define ATHANOR_ON_EACH_PLACE(Suite)                                                                  \
  INSTANTIATE_TEST_SUITE_P(, Suite, ::testing::Values(Place::kCpu, Place::kCudaOnHost, Place::kCuda), \
                           [](const ::testing::TestParamInfo<Place>& place) { return name_of(place.param); })

/// Returns numbers in [−scale, scale) without a pattern, the same everywhere.
template <class T>
std::vector<T> numbers(int64_t count, unsigned salt, float scale = 1) {
  std::vector<T> x(static_cast<size_t>(count));
  unsigned state = salt * 2654435761u + 12345u;
  for (T& value : x) {
    state = state * 1664525u + 1013904223u;
    store(value, (static_cast<float>(state >> 8) * 0x1p-23f - 1) * scale);
  }
  return x;
}

/// The value of a result before it is written, so that a gap is visible.
template <class T>
std::vector<T> garbage(int64_t count) {
  std::vector<T> x(static_cast<size_t>(count));
  if (count > 0) std::memset(static_cast<void*>(x.data()), 0x7F, x.size() * sizeof(T));
  return x;
}

template <class T>
void expect_same_bits(const std::vector<T>& actual, const std::vector<T>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(T)), 0)
        << what << "[" << i << "]: " << static_cast<double>(load(actual[i])) << ", expected "
        << static_cast<double>(load(expected[i]));
  }
}
inline void expect_same_bits(const std::vector<int64_t>& actual, const std::vector<int64_t>& expected,
                             const std::string& what) {
  ASSERT_EQ(actual, expected) << what;
}

template <class T>
constexpr double kRoundoff = sizeof(T) == 2 ? kRoundoffBf16 : kRoundoffFp32;

/// Runs f with a float and with a Bf16 as tag.
template <class F>
void with_each_type(F f) {
  f(float{});
  f(Bf16{});
}

}  // namespace athanor::kernels::test
