// Measures the CUDA kernels as a share of a device copy's bandwidth in the same run. Each kernel is first compared with
// the same body on the host, on a small shape; a wrong kernel gets no figure.
//
// Usage: kernels_cuda_bench [TOKENS [HIDDEN [FFN [EXPERTS [K]]]]]   (defaults 8192 2048 1024 64 8)

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/adamw.h"
#include "kernels/cuda/balance.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/expert_activation.h"
#include "kernels/cuda/grouped_matmul.h"
#include "kernels/cuda/lamb.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/router.h"
#include "kernels/cuda/routing.h"
#include "kernels/cuda/update.h"

namespace athanor::kernels::cuda {
namespace {

struct Shape {
  int64_t tokens = 8192, hidden = 2048, ffn = 1024, experts = 64, k = 8, vocab = 50304;
  int64_t rows() const { return tokens * k; }
};

// Arrays in the memory of one side, host or device. They are filled with the same numbers on both sides, and freed
// together.
class Arena {
 public:
  explicit Arena(const Stream& stream) : stream_(stream) {}
  ~Arena() {
    for (const Array& array : arrays_) release(stream_, array.data);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  T* fill(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    void* data = allocate(stream_, bytes);
    arrays_.push_back({data, bytes});
    copy_in(stream_, data, values.data(), bytes);
    return static_cast<T*>(data);
  }
  template <class T>
  T* numbers(int64_t count, float scale = 1) {
    std::vector<T> x(static_cast<size_t>(count));
    auto state = static_cast<unsigned>(arrays_.size() + 1) * 2654435761u;
    for (T& value : x) {
      state = state * 1664525u + 1013904223u;
      store(value, (static_cast<float>(state >> 8) * 0x1p-23f - 1) * scale);
    }
    return fill(x);
  }
  template <class T>
  T* zeros(int64_t count) {
    return fill(std::vector<T>(static_cast<size_t>(count)));
  }
  /// Returns int64 values in [0, below).
  int64_t* ids(int64_t count, int64_t below) {
    std::vector<int64_t> x(static_cast<size_t>(count));
    uint64_t state = 88172645463325252u;
    for (int64_t& value : x) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(below));
    }
    return fill(x);
  }
  /// Returns all bytes of all arrays, to compare the two sides.
  std::vector<std::vector<unsigned char>> bytes() const {
    std::vector<std::vector<unsigned char>> all;
    for (const Array& array : arrays_) {
      copy_out(stream_, all.emplace_back(static_cast<size_t>(array.bytes)).data(), array.data, array.bytes);
    }
    return all;
  }

 private:
  struct Array {
    void* data;
    int64_t bytes;
  };
  Stream stream_;
  std::vector<Array> arrays_;
};

// Allocates in the arena and returns what to run; `bytes` is the least that it must read and write.
struct Case {
  const char* name;
  std::function<std::function<void()>(const Stream&, Arena&, const Shape&)> prepare;
  std::function<double(const Shape&)> bytes;
  bool uses_libm = false;  // its last bits may differ between the device's libm and the host's: compared by eye only
};

std::vector<int64_t> identity(int64_t count) {
  std::vector<int64_t> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] = i;
  return x;
}

// Groups of equal size.
std::vector<int64_t> even_offsets(int64_t rows, int64_t groups) {
  std::vector<int64_t> offsets;
  for (int64_t g = 0; g <= groups; ++g) offsets.push_back(rows * g / groups);
  return offsets;
}

AdamwStep some_step() {
  AdamwStep s{};
  s.lr = 1e-3f, s.eps = 1e-8f, s.weight_decay = 0.1f, s.beta1 = 0.9, s.beta2 = 0.999;
  s.bias_correction1 = 0.1f, s.bias_correction2 = 0.001f, s.grad_scale = 1;
  return s;
}

// clang-format off
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
    {"route_rows", [](const Stream& s, Arena& a, const Shape& n) {
       const auto* logits = a.numbers<Bf16>(n.tokens * n.experts, 4);
       auto *scores = a.zeros<float>(n.tokens * n.experts), *lse = a.zeros<float>(n.tokens), *weights = a.zeros<float>(n.rows());
       auto* ids = a.zeros<int64_t>(n.rows());
       return [=] { route_rows(s, logits, {n.experts, n.k}, {}, nullptr, {scores, lse, nullptr, ids, weights}, n.tokens); }; },
     [](const Shape& n) { return 6.0 * n.tokens * n.experts + 12.0 * n.rows(); }, true},
    {"swipe", [](const Stream& s, Arena& a, const Shape& n) {
       const ChoiceGroups in{n.tokens / n.experts, n.experts, n.k, n.experts};
       const int64_t count = in.groups * in.choices();
       // Half of a group's tokens name the first experts.
       std::vector<int64_t> chosen(static_cast<size_t>(count));
       for (int64_t c = 0; c < count; ++c) chosen[static_cast<size_t>(c)] = (c % (2 * n.k) + c / (4 * n.k)) % n.experts;
       const auto* from = a.fill(chosen);
       auto *ids = a.zeros<int64_t>(count), *space = a.zeros<int64_t>(swipe_workspace(in));
       return [=] { swipe(s, from, ids, space, in); }; },
     [](const Shape& n) { return 16.0 * n.rows(); }},
    {"sort_choices", [](const Stream& s, Arena& a, const Shape& n) {
       const auto* ids = a.ids(n.rows(), n.experts);
       auto *offsets = a.zeros<int64_t>(n.experts + 1), *choices = a.zeros<int64_t>(n.rows()), *rows = a.zeros<int64_t>(n.rows());
       auto* space = a.zeros<int64_t>(sort_choices_workspace(n.tokens, n.experts));
       return [=] { sort_choices(s, ids, n.tokens, n.k, 0, n.experts, offsets, choices, rows, space); }; },
     [](const Shape& n) { return 24.0 * n.rows(); }},
    {"gather_rows", [](const Stream& s, Arena& a, const Shape& n) {
       const auto* x = a.numbers<Bf16>(n.tokens * n.hidden);
       const auto* choices = a.fill(identity(n.rows()));
       auto* out = a.zeros<Bf16>(n.rows() * n.hidden);
       const auto* count = a.fill(std::vector<int64_t>{n.rows()});
       return [=] { gather_rows(s, x, {choices, count, n.rows()}, out, n.k, n.hidden); }; },
     [](const Shape& n) { return 2.0 * n.hidden * (n.tokens + n.rows()); }},
    {"combine_rows", [](const Stream& s, Arena& a, const Shape& n) {
       const auto* y = a.numbers<Bf16>(n.rows() * n.hidden);
       const auto* weights = a.numbers<float>(n.rows());
       const auto* rows = a.fill(identity(n.rows()));
       auto* out = a.zeros<Bf16>(n.tokens * n.hidden);
       const Bf16* none = nullptr;
       return [=] { combine_rows(s, y, none, weights, rows, out, n.tokens, n.k, n.hidden); }; },
     [](const Shape& n) { return 2.0 * n.hidden * (n.tokens + n.rows()); }},
    {"expert_activation", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *gate = a.numbers<Bf16>(n.rows() * n.ffn, 8), *up = a.numbers<Bf16>(n.rows() * n.ffn);
       const auto* weights = a.numbers<float>(n.rows());
       const auto* choices = a.fill(identity(n.rows()));
       auto* act = a.zeros<Bf16>(n.rows() * n.ffn);
       const auto* count = a.fill(std::vector<int64_t>{n.rows()});
       return [=] { expert_activation(s, gate, up, weights, {choices, count, n.rows()}, act, n.ffn); }; },
     [](const Shape& n) { return 6.0 * n.rows() * n.ffn; }},
    {"expert_activation_backward", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *gate = a.numbers<Bf16>(n.rows() * n.ffn, 8), *up = a.numbers<Bf16>(n.rows() * n.ffn);
       auto *dact = a.numbers<Bf16>(n.rows() * n.ffn), *dup = a.zeros<Bf16>(n.rows() * n.ffn), *act = a.zeros<Bf16>(n.rows() * n.ffn);
       const auto* weights = a.numbers<float>(n.rows());
       const auto* choices = a.fill(identity(n.rows()));
       auto* dweights = a.zeros<float>(n.rows());
       const auto* count = a.fill(std::vector<int64_t>{n.rows()});
       return [=] { expert_activation_backward(s, gate, up, dact, dup, act, weights, {choices, count, n.rows()}, dweights, n.ffn); }; },
     [](const Shape& n) { return 12.0 * n.rows() * n.ffn; }},
    {"grouped_matmul, fp32", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *x = a.numbers<float>(n.rows() * n.hidden), *w = a.numbers<float>(n.experts * n.hidden * n.ffn);
       const auto* offsets = a.fill(even_offsets(n.rows(), n.experts));
       auto* y = a.zeros<float>(n.rows() * n.ffn);
       return [=] { grouped_matmul(s, x, w, true, y, offsets, {n.experts, n.rows(), n.hidden, n.ffn}); }; },
     [](const Shape& n) { return 4.0 * (n.rows() * (n.hidden + n.ffn) + n.experts * n.hidden * n.ffn); }},
    {"grouped outer product, fp32", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *dy = a.numbers<float>(n.rows() * n.ffn), *x = a.numbers<float>(n.rows() * n.hidden);
       const auto* offsets = a.fill(even_offsets(n.rows(), n.experts));
       auto* sum = a.zeros<float>(n.experts * n.ffn * n.hidden);
       return [=] { add_grouped_outer_product(s, sum, dy, x, offsets, n.experts, n.ffn, n.hidden); }; },
     [](const Shape& n) { return 4.0 * (n.rows() * (n.hidden + n.ffn) + 2.0 * n.experts * n.hidden * n.ffn); }},
    {"swiglu_forward", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *gate = a.numbers<Bf16>(n.rows() * n.ffn, 8), *up = a.numbers<Bf16>(n.rows() * n.ffn);
       auto* out = a.zeros<Bf16>(n.rows() * n.ffn);
       return [=] { swiglu_forward(s, gate, up, out, n.rows() * n.ffn); }; },
     [](const Shape& n) { return 6.0 * n.rows() * n.ffn; }},
    {"add_rms_norm_forward", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *x = a.numbers<Bf16>(n.tokens * n.hidden), *branch = a.numbers<Bf16>(n.tokens * n.hidden), *w = a.numbers<Bf16>(n.hidden);
       auto *sum = a.zeros<Bf16>(n.tokens * n.hidden), *y = a.zeros<Bf16>(n.tokens * n.hidden);
       auto* rstd = a.zeros<float>(n.tokens);
       return [=] { rms_norm_forward(s, x, branch, w, sum, y, rstd, n.tokens, n.hidden, 1e-5f); }; },
     [](const Shape& n) { return 8.0 * n.tokens * n.hidden; }},
    {"add_rms_norm_backward", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *dsum = a.numbers<Bf16>(n.tokens * n.hidden), *dy = a.numbers<Bf16>(n.tokens * n.hidden);
       const auto *x = a.numbers<Bf16>(n.tokens * n.hidden), *w = a.numbers<Bf16>(n.hidden);
       const auto* rstd = a.numbers<float>(n.tokens);
       auto* dx = a.zeros<Bf16>(n.tokens * n.hidden);
       auto *dw = a.zeros<float>(n.hidden), *partials = a.zeros<float>(norm_partials(n.tokens, n.hidden));
       return [=] { rms_norm_backward(s, dsum, dy, x, w, rstd, dx, dw, partials, n.tokens, n.hidden); }; },
     [](const Shape& n) { return 8.0 * n.tokens * n.hidden; }},
    {"add_layer_norm_forward", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *x = a.numbers<Bf16>(n.tokens * n.hidden), *branch = a.numbers<Bf16>(n.tokens * n.hidden);
       auto *sum = a.zeros<Bf16>(n.tokens * n.hidden), *y = a.zeros<Bf16>(n.tokens * n.hidden);
       auto *mean = a.zeros<float>(n.tokens), *rstd = a.zeros<float>(n.tokens);
       return [=] { layer_norm_forward(s, x, branch, sum, y, mean, rstd, n.tokens, n.hidden, 1e-5f); }; },
     [](const Shape& n) { return 8.0 * n.tokens * n.hidden; }},
    {"add_layer_norm_backward", [](const Stream& s, Arena& a, const Shape& n) {
       const auto *dsum = a.numbers<Bf16>(n.tokens * n.hidden), *dy = a.numbers<Bf16>(n.tokens * n.hidden);
       const auto *x = a.numbers<Bf16>(n.tokens * n.hidden);
       const auto *mean = a.numbers<float>(n.tokens), *rstd = a.numbers<float>(n.tokens);
       auto* dx = a.zeros<Bf16>(n.tokens * n.hidden);
       return [=] { layer_norm_backward(s, dsum, dy, x, mean, rstd, dx, n.tokens, n.hidden); }; },
     [](const Shape& n) { return 8.0 * n.tokens * n.hidden; }},
    {"rope", [](const Stream& s, Arena& a, const Shape& n) {
       const auto* x = a.numbers<Bf16>(n.tokens * n.hidden);
       const auto *cos = a.numbers<float>(n.tokens * 64), *sin = a.numbers<float>(n.tokens * 64);
       auto* y = a.zeros<Bf16>(n.tokens * n.hidden);
       return [=] { rope(s, x, y, cos, sin, n.tokens, n.hidden / 128, 128, 1); }; },
     [](const Shape& n) { return 4.0 * n.tokens * n.hidden + 512.0 * n.tokens; }},
    {"cross_entropy", [](const Stream& s, Arena& a, const Shape& n) {
       const int64_t rows = std::min<int64_t>(n.tokens, 2048);
       auto* logits = a.numbers<Bf16>(rows * n.vocab, 4);
       const auto* targets = a.ids(rows, n.vocab);
       auto* losses = a.zeros<float>(rows);
       return [=] { cross_entropy(s, logits, targets, losses, static_cast<bool*>(nullptr), rows, n.vocab, 1e-3f); }; },
     [](const Shape& n) { return 4.0 * std::min<int64_t>(n.tokens, 2048) * n.vocab; }, true},
    {"adamw, bf16 and 16 bits", [](const Stream& s, Arena& a, const Shape& n) {
       const int64_t count = n.tokens * n.hidden * 2;
       auto* weight = a.numbers<Bf16>(count);
       auto* low = a.zeros<uint16_t>(count);
       auto *m = a.zeros<float>(count), *v = a.zeros<float>(count), *grad = a.numbers<float>(count);
       auto* changed = a.zeros<int64_t>(1);
       return [=] { adamw(s, some_step(), weight, low, m, v, grad, count, changed); }; },
     [](const Shape& n) { return 32.0 * n.tokens * n.hidden * 2; }},
    {"sgd, bf16 and 16 bits", [](const Stream& s, Arena& a, const Shape& n) {
       const int64_t count = n.tokens * n.hidden * 2;
       const Masters masters{nullptr, a.numbers<Bf16>(count), a.zeros<uint16_t>(count)};
       auto *m = a.zeros<float>(count), *grad = a.numbers<float>(count);
       auto* changed = a.zeros<int64_t>(1);
       const SgdRule rule{1e-3f, 0.1f, 0.9f, false};
       return [=] { update(s, rule, masters, {m}, grad, 1, count, changed, nullptr, nullptr); }; },
     [](const Shape& n) { return 24.0 * n.tokens * n.hidden * 2; }},
    {"sophia, bf16 and 16 bits", [](const Stream& s, Arena& a, const Shape& n) {
       const int64_t count = n.tokens * n.hidden * 2;
       const Masters masters{nullptr, a.numbers<Bf16>(count), a.zeros<uint16_t>(count)};
       auto *m = a.zeros<float>(count), *h = a.zeros<float>(count), *grad = a.numbers<float>(count);
       auto *changed = a.zeros<int64_t>(1), *clipped = a.zeros<int64_t>(1);
       const SophiaRule rule{1e-3f, 0.1f, 0.9f, 0.01f};
       return [=] { update(s, rule, masters, {m, h}, grad, 1, count, changed, clipped, nullptr); }; },
     [](const Shape& n) { return 28.0 * n.tokens * n.hidden * 2; }},
    {"lamb, bf16 and 16 bits", [](const Stream& s, Arena& a, const Shape& n) {
       const int64_t count = n.tokens * n.hidden * 2;
       const Masters masters{nullptr, a.numbers<Bf16>(count), a.zeros<uint16_t>(count)};
       auto *m = a.zeros<float>(count), *v = a.zeros<float>(count), *grad = a.numbers<float>(count);
       // Two matrices of half of the elements.
       const int64_t half = count / 2, runs = matrix_runs(half);
       const std::vector<MatrixPart> halves{{0, half, 0, 0, 0, 1}, {half, half, half, half, 1, 1}};
       const MatrixParts parts{a.fill(halves), a.fill(std::vector<int64_t>{0, runs, 2 * runs}), 2, 2 * runs};
       auto *partials = a.zeros<double>(4 * runs), *squares = a.zeros<double>(4);
       const LambStep step{1e-6f, 0.1f, 0.9, 0.999, 0.1f, 0.01f, 1};
       return [=] {
         lamb_directions(s, step, parts, masters, m, v, grad, partials, nullptr);
         add_lamb_partials(s, parts, partials, squares);
       }; },
     [](const Shape& n) { return 28.0 * n.tokens * n.hidden * 2; }},
    {"sum_of_squares", [](const Stream& s, Arena& a, const Shape& n) {
       const int64_t count = n.tokens * n.hidden * 2;
       const auto* x = a.numbers<float>(count);
       auto *partials = a.zeros<double>(sum_of_squares_partials(count)), *out = a.zeros<double>(1);
       return [=] { sum_of_squares(s, x, count, partials, out); }; },
     [](const Shape& n) { return 4.0 * n.tokens * n.hidden * 2; }},
  };
  return all;
}
// clang-format on

// Counts the bytes that differ between the device and the host.
int64_t differences(const Case& test, const Stream& device) {
  const Shape small{96, 256, 128, 16, 4, 1000};
  const Stream host = Stream::host();
  Arena on_device(device), on_host(host);
  test.prepare(device, on_device, small)();
  test.prepare(host, on_host, small)();
  synchronize(device);
  const auto a = on_device.bytes(), b = on_host.bytes();
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t at = 0; at < a[i].size(); ++at) count += a[i][at] != b[i][at] ? 1 : 0;
  }
  return count;
}

// Returns the median of the milliseconds of runs, after a few that are not counted.
double median_ms(const Stream& stream, const std::function<void()>& run) {
  std::vector<double> times;
  Timer timer(stream);
  for (int i = 0; i < 25; ++i) {
    timer.start();
    run();
    const double ms = timer.stop_ms();
    if (i >= 5) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int bench(const Shape& shape) {
  if (const char* why = why_no_device()) {
    std::fprintf(stderr, "kernels_cuda_bench: no CUDA device: %s\n", why);
    return 1;
  }
  const Stream stream = Stream::device(nullptr);
  std::printf("%lld tokens, hidden %lld, ffn %lld, %lld experts, %lld of each token, vocabulary %lld\n",
              static_cast<long long>(shape.tokens), static_cast<long long>(shape.hidden),
              static_cast<long long>(shape.ffn), static_cast<long long>(shape.experts), static_cast<long long>(shape.k),
              static_cast<long long>(shape.vocab));
  const int64_t copied = int64_t{1} << 30;
  double limit = 0;
  {
    void *from = allocate(stream, copied), *to = allocate(stream, copied);
    limit = 2.0 * static_cast<double>(copied) / median_ms(stream, [&] { copy_on(stream, to, from, copied); }) * 1e-6;
    release(stream, from);
    release(stream, to);
  }
  std::printf("%-28s %10s %10s %8s\n%-28s %10s %10.0f %8s\n", "kernel", "ms", "GB/s", "of copy", "copy of 1 GiB", "",
              limit, "1.00");
  int wrong = 0;
  for (const Case& test : cases()) {
    const int64_t different = differences(test, stream);
    if (different > 0 && !test.uses_libm) {
      std::printf("%-28s WRONG: %lld bytes differ from the same body on the host\n", test.name,
                  static_cast<long long>(different));
      ++wrong;
      continue;
    }
    Arena arena(stream);
    const double ms = median_ms(stream, test.prepare(stream, arena, shape)), rate = test.bytes(shape) / ms * 1e-6;
    std::printf("%-28s %10.3f %10.0f %8.2f%s\n", test.name, ms, rate, rate / limit,
                different > 0 ? "  (last bits of a logarithm differ from the host's)" : "");
  }
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace athanor::kernels::cuda

int main(int argc, char** argv) {
  athanor::kernels::cuda::Shape shape;
  int64_t* const numbers[] = {&shape.tokens, &shape.hidden, &shape.ffn, &shape.experts, &shape.k};
  for (int i = 1; i < argc; ++i) {
    const long long value = i <= 5 ? std::atoll(argv[i]) : 0;
    if (value <= 0) {
      std::fprintf(stderr, "usage: kernels_cuda_bench [TOKENS [HIDDEN [FFN [EXPERTS [K]]]]], all above zero\n");
      return 2;
    }
    *numbers[i - 1] = value;
  }
  if (shape.hidden % 128 != 0 || shape.k > shape.experts) {
    std::fprintf(stderr, "kernels_cuda_bench: HIDDEN is a multiple of 128 (heads of 128), K at most EXPERTS\n");
    return 2;
  }
  try {
    return athanor::kernels::cuda::bench(shape);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "kernels_cuda_bench: %s\n", error.what());
    return 1;
  }
}
