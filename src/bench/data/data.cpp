#include "bench/data/data.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/temporary_folder.h"
#include "bench/data/rows.h"
#include "documents/standard_input.h"
#include "prepare/prepare.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxVerifiedBytes = size_t{1} << 20, kVerifiedPieceBytes = 2000;

struct Texts {
  std::vector<std::string> documents;
  size_t num_bytes = 0;       // bytes of these texts
  size_t num_bytes_read = 0;  // bytes of all texts
};

Texts read_texts(const BenchDataArguments& arguments) {
  Texts texts;
  DocumentOptions options;
  options.text_field = arguments.text_field;
  ATHANOR_CHECK(std::ranges::count(arguments.inputs, kStandardInput) == 0,
                "bench data reads its input several times; name files, not - (standard input)");
  for (const auto& file : expand_inputs(arguments.inputs)) {
    read_documents(file, options, [&](Document&& document) {
      texts.num_bytes_read += document.text.size();
      if (texts.num_bytes >= arguments.max_bytes) return;
      texts.num_bytes += document.text.size();
      texts.documents.push_back(std::move(document.text));
    });
  }
  ATHANOR_CHECK_DATA(texts.num_bytes > 0, "there is no text in these files; name some with documents");
  return texts;
}

using Clock = double (*)();

// Calls `work` `rounds` times after one warm-up call, and returns MB of text per second. The time of single-threaded
// work is that thread's own processor time, so that other load on the machine counts less.
BenchRow measure(const std::string& name, size_t num_bytes, int rounds, const std::function<void()>& work,
                 Clock clock) {
  BenchRow row{name, "MB/s", {}};
  work();
  for (int round = 0; round < rounds; ++round) {
    const double start = clock();
    work();
    row.values.push_back(static_cast<double>(num_bytes) * 1e-6 / (clock() - start));
  }
  return row;
}

// Compares with the form that has no short cuts. Its merging is quadratic, so the texts are compared piece by piece.
size_t verify(const Tokenizer& tokenizer, const Texts& texts) {
  if (tokenizer.file_name() != "tokenizer.json") return 0;  // then a library does the work
  const auto plain = Tokenizer::parse(tokenizer.file_bytes(), tokenizer.file_name(), true);
  size_t num_bytes = 0;
  for (const auto& document : texts.documents) {
    for (size_t begin = 0; begin < document.size() && num_bytes < kMaxVerifiedBytes;) {
      size_t end = std::min(document.size(), begin + kVerifiedPieceBytes);
      while (end < document.size() && (static_cast<unsigned char>(document[end]) & 0xC0) == 0x80) ++end;
      const auto piece = std::string_view(document).substr(begin, end - begin);
      ATHANOR_ASSERT(tokenizer.encode(piece) == plain.encode(piece));
      num_bytes += piece.size();
      begin = end;
    }
  }
  return num_bytes;
}

uint64_t encode_all(const Tokenizer& tokenizer, const Texts& texts, int num_threads) {
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> num_tokens{0};
  const auto work = [&] {
    std::vector<uint32_t> ids;
    for (size_t i = next++; i < texts.documents.size(); i = next++) {
      ids.clear();
      tokenizer.encode_append(texts.documents[i], ids);
      num_tokens += ids.size();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  return num_tokens;
}

// Processor time of all threads of this process, including the time of the kernel.
double process_s() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// @param encode_rate  rate of one thread in MB/s, from which the share of encoding in the processor time follows.
BenchRow measure_prepare(const BenchDataArguments& arguments, uint32_t eos_id, int num_threads, double encode_rate) {
  const TemporaryFolder scratch(fs::temp_directory_path() / "athanor-bench");
  PrepareOptions options;
  options.tokenizer = arguments.tokenizer;
  options.inputs = arguments.inputs;
  options.documents.text_field = arguments.text_field;
  options.seq_len = 1024;
  options.eos = std::to_string(eos_id);
  options.num_threads = num_threads;
  options.out = scratch / "data";
  options.overwrite = true;
  BenchRow row{"whole prepare", "MB/s", {}};
  double encode_s = 0, cpu_s = 0;
  for (int round = 0; round < arguments.rounds; ++round) {
    const double start = now_s(), cpu_start = process_s();
    const auto manifest = prepare(options);
    const double megabytes = static_cast<double>(manifest.text_bytes) * 1e-6;
    row.values.push_back(megabytes / (now_s() - start));
    encode_s += megabytes / encode_rate;
    cpu_s += process_s() - cpu_start;
  }
  row.note = fmt::format("encoding is {:.0f}% of its processor time", 100 * encode_s / cpu_s);
  return row;
}

std::vector<BenchRow> measure_all(const BenchDataArguments& arguments, const Tokenizer& tokenizer, const Texts& texts) {
  const int rounds = arguments.rounds;
  const int num_threads = arguments.num_threads > 0
                              ? arguments.num_threads
                              : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& name, const std::function<void()>& work, Clock clock = thread_s) {
    rows.push_back(measure(name, texts.num_bytes, rounds, work, clock));
  };
  const auto encode_by = [&](int threads) { return [&, threads] { encode_all(tokenizer, texts, threads); }; };
  if (arguments.encode_only) {
    add("encode, one thread", encode_by(1));
    return rows;
  }
  rows.push_back(measure_memory_copy(rounds));
  rows.push_back(measure(
      "read and parse, one thread", texts.num_bytes_read, rounds, [&] { read_texts(arguments); }, thread_s));
  uint64_t num_words = 0;
  const auto cut = [&] {
    for (const auto& document : texts.documents) num_words += tokenizer.count_words(document);
  };
  if (tokenizer.count_words("a") > 0) add("cut into words, one thread", cut);
  add("encode, one thread", encode_by(1));
  const double one_thread = rows.back().median();
  add(fmt::format("encode, {} threads", num_threads), encode_by(num_threads), now_s);
  const double all_threads = rows.back().median();
  rows.back().note = fmt::format("{:.1f} a core, {:.0f}% of one thread alone", all_threads / num_threads,
                                 100 * all_threads / num_threads / one_thread);
  rows.push_back(measure_prepare(arguments, tokenizer.eos_id().value_or(0), num_threads, one_thread));
  rows.back().note = fmt::format("{:.0f}% of encoding on as many threads; {}", 100 * rows.back().median() / all_threads,
                                 rows.back().note);
  return rows;
}

}  // namespace

void bench_data(const BenchDataArguments& arguments) {
  ATHANOR_CHECK(arguments.rounds >= 1, "--rounds ({}) must be at least 1", arguments.rounds);
  ATHANOR_CHECK(arguments.num_threads >= 0, "--threads ({}) must not be negative; 0 takes one for each core",
                arguments.num_threads);
  const auto tokenizer = Tokenizer::load(arguments.tokenizer);
  const auto texts = read_texts(arguments);
  const size_t verified = verify(tokenizer, texts);
  const auto num_tokens = encode_all(tokenizer, texts, 1);
  fmt::print("{} documents, {:.1f} MB of text, {} tokens; {:.1f} MB verified against the plain way\n",
             texts.documents.size(), static_cast<double>(texts.num_bytes) * 1e-6, num_tokens,
             static_cast<double>(verified) * 1e-6);
  const auto rows = measure_all(arguments, tokenizer, texts);
  print_bench_rows(rows);
  if (arguments.json.empty()) return;
  const nlohmann::json report{{"documents", texts.documents.size()},
                              {"text_bytes", texts.num_bytes},
                              {"tokens", num_tokens},
                              {"verified_bytes", verified},
                              {"rows", bench_rows_json(rows)}};
  write_file_atomically(arguments.json, report.dump(1) + "\n");
}

}  // namespace athanor
