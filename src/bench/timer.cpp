#include "bench/timer.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/process.h"
#include "base/thread_share.h"
#include "ops/flat_memory.h"
#include "ops/grouped_matmul.h"
#include "ops/tensor.h"
#include "ops/transfer.h"

namespace athanor::bench {

double Laps::now_s() const {
  ops::wait_for(device_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Laps::end(size_t part) {
  const double now = now_s();
  seconds_.at(part) += now - last_s_;
  last_s_ = now;
}

double Subject::work() const {
  double sum = 0;
  for (const Part& part : parts) sum += part.work;
  return sum;
}

Subject simple_subject(std::string name, double work, std::function<void()> call) {
  return {std::move(name), {{"", work}}, [call = std::move(call)](Laps& laps) {
            call();
            laps.end(0);
          }};
}

namespace {

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

std::vector<double> time_once(const Subject& subject, at::Device device) {
  Laps laps(subject.parts.size(), device);
  subject.call(laps);
  return laps.seconds();
}

// Makes two calls: the first call of a shape compiles kernels and allocates memory.
int calls_per_round(const Subject& subject, at::Device device) {
  constexpr double kRound_s = 0.02;
  constexpr double kMost = 10000;
  time_once(subject, device);
  const double once_s = sum(time_once(subject, device));
  return static_cast<int>(std::clamp(std::ceil(kRound_s / std::max(once_s, 1e-9)), 1.0, kMost));
}

void add_round(const Subject& subject, at::Device device, int calls, Samples& samples) {
  std::vector<double> parts(subject.parts.size(), 0.0);
  for (int i = 0; i < calls; ++i) {
    const auto once = time_once(subject, device);
    for (size_t p = 0; p < parts.size(); ++p) parts[p] += once[p] / calls;
  }
  samples.total.push_back(sum(parts));
  samples.parts.resize(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) samples.parts[p].push_back(parts[p]);
}

}  // namespace

std::vector<Samples> measure_in_turns(const std::vector<Subject>& subjects, const BenchArguments& given,
                                      at::Device device) {
  std::vector<int> calls;
  for (const Subject& subject : subjects) calls.push_back(calls_per_round(subject, device));
  std::vector<Samples> samples(subjects.size());
  const auto measure_round = [&] {
    for (size_t i = 0; i < subjects.size(); ++i) add_round(subjects[i], device, calls[i], samples[i]);
  };
  if (!given.paced) {
    for (int round = 0; round < given.rounds; ++round) measure_round();
    return samples;
  }
  std::cout << "ready" << std::endl;
  int rounds = 0;
  for (std::string line; std::getline(std::cin, line); ++rounds) {
    measure_round();
    std::cout << "done" << std::endl;
  }
  ATHANOR_CHECK_DATA(rounds > 0, "--paced: standard input has no line to begin a round with");
  return samples;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<Subject> gemm_yardsticks(at::ScalarType dtype) {
  std::vector<Subject> subjects;
  for (const int64_t n : {1024, 2048}) {
    const at::Tensor a = at::randn({n, n}).to(dtype), b = at::randn({n, n}).to(dtype), c = at::empty({n, n}, dtype);
    subjects.push_back(simple_subject("matmul " + std::to_string(n), 2.0 * static_cast<double>(n * n * n), [a, b, c] {
      at::Tensor out = c;
      at::mm_out(out, a, b.t());  // as training does; where bf16 is emulated, the other form takes ten times as long
    }));
  }
  constexpr int64_t kGroups = 4, kRows = 512, kWidth = 1024;
  const at::Tensor a = at::randn({kGroups * kRows, kWidth}).to(dtype), c = at::empty_like(a);
  const at::Tensor b = at::randn({kGroups, kWidth, kWidth}).to(dtype);
  ops::GroupOffsets offsets;
  for (int64_t g = 0; g <= kGroups; ++g) offsets.push_back(g * kRows);
  const double flops = 2.0 * static_cast<double>(kGroups * kRows * kWidth * kWidth);
  subjects.push_back(simple_subject("grouped 4 x 512, 1024", flops, [=] {
    ops::grouped_matmul(offsets, {{a, b, /*b_transposed=*/true, c}});
  }));
  return subjects;
}

namespace {

constexpr int64_t kWordBytes = 8, kLineWords = 8;

// Calls f with each cache line of words [begin, end), from four positions in turn. More memory is then on its way to a
// core than with one position, as in an optimizer, which reads several arrays.
template <class T, class F>
void for_lines(T* words, int64_t begin, int64_t end, F f) {
  constexpr int64_t kStreams = 4;
  const int64_t lines = (end - begin) / kLineWords / kStreams;
  for (int64_t i = 0; i < lines; ++i) {
    for (int64_t s = 0; s < kStreams; ++s) f(words + begin + (s * lines + i) * kLineWords);
  }
}

}  // namespace

std::vector<Subject> copy_yardsticks(int64_t bytes, at::Device device) {
  const double work = 2.0 * static_cast<double>(bytes);
  if (!device.is_cpu()) {
    const at::Tensor x = at::zeros({bytes / kWordBytes}, at::TensorOptions(at::kDouble).device(device)),
                     y = at::zeros_like(x);
    return {simple_subject("copy", work, [=] { y.copy_(x); }),
            simple_subject("change in place", work, [=] { y.add_(1); })};
  }
  const at::Tensor from = ops::flat_zeros(bytes, at::kByte), to = ops::flat_zeros(bytes, at::kByte);
  at::Tensor(from).fill_(1);  // memory that was never written is one page of zeros
  const auto copy = [from, to, bytes] {
    const auto* source = from.const_data_ptr<uint8_t>();
    auto* target = to.data_ptr<uint8_t>();
    at::parallel_for(0, bytes, 1 << 20, [&](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
    });
  };
  const auto change = [to, bytes] {
    auto* words = reinterpret_cast<uint64_t*>(to.data_ptr<uint8_t>());
    at::parallel_for(0, bytes / kWordBytes, 1 << 17, [&](int64_t begin, int64_t end) {
      for_lines(words, begin, end, [](uint64_t* line) {
        for (int64_t j = 0; j < kLineWords; ++j) line[j] += 1;
      });
    });
  };
  return {simple_subject("copy", work, copy), simple_subject("change in place", work, change)};
}

Subject read_yardstick(int64_t bytes, at::Device device) {
  const int64_t words = bytes / kWordBytes;
  if (!device.is_cpu()) {
    const at::Tensor x = at::zeros({words}, at::TensorOptions(at::kDouble).device(device));
    return simple_subject("read", static_cast<double>(bytes), [=] { x.sum(); });
  }
  at::Tensor from = ops::flat_zeros(words, at::kLong);
  from.fill_(1);  // memory that was never written is one page of zeros
  const at::Tensor sums = at::zeros({at::get_num_threads()}, at::kLong);
  return simple_subject("read", static_cast<double>(words * kWordBytes), [from, sums, words] {
    const auto* word = from.const_data_ptr<int64_t>();
    auto* sum = sums.data_ptr<int64_t>();
    at::parallel_for(0, words, 1 << 17, [&](int64_t begin, int64_t end) {
      int64_t totals[kLineWords] = {}, total = 0;
      for_lines(word, begin, end, [&](const int64_t* line) {
        for (int64_t j = 0; j < kLineWords; ++j) totals[j] += line[j];
      });
      for (const int64_t one : totals) total += one;
      sum[at::get_thread_num()] += total;  // so that the loop is needed
    });
  });
}

double best_rate(const std::vector<Subject>& subjects, const std::vector<Samples>& samples, size_t first,
                 size_t count) {
  double best = 0;
  for (size_t i = first; i < first + count; ++i) {
    best = std::max(best, subjects[i].work() / median(samples[i].total));
  }
  return best;
}

void set_up(const BenchArguments& given) {
  ATHANOR_CHECK(given.rounds >= 1, "--rounds ({}) must be at least 1", given.rounds);
  ATHANOR_CHECK(given.num_threads >= 0, "--threads ({}) must not be negative; 0 takes one for each core",
                given.num_threads);
  if (!given.json.empty()) {
    const auto folder = std::filesystem::absolute(given.json).parent_path();
    ATHANOR_CHECK(std::filesystem::is_directory(folder), "--json: there is no folder {}", folder.string());
  }
  at::set_num_threads(given.num_threads > 0 ? thread_count("--threads", given.num_threads)
                                            : share_threads(find_thread_limits()).threads);
}

std::vector<at::ScalarType> dtypes_of(const std::string& name) {
  if (name.empty()) return {at::kBFloat16, at::kFloat};
  return {ops::scalar_type(number_type(name, "--dtype"))};
}

}  // namespace athanor::bench
