#include "eval/answers_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"

namespace athanor::inline eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kWindowEnd = "documents";  // the key of a line after a window: how many there are so far

std::string line_of(const Answers& answers) {
  Json line = Json::array();
  for (const auto& [log_likelihood, is_greedy, num_tokens] : answers)
    line.push_back({log_likelihood, is_greedy, num_tokens});
  return line.dump() + "\n";
}

bool is_answer(const Json& answer) {
  return answer.is_array() && answer.size() == 3 && answer[0].is_number() && answer[1].is_boolean() &&
         answer[2].is_number_integer();
}

std::optional<Answers> answers_of(const Json& line) {
  if (!line.is_array()) return std::nullopt;
  Answers answers;
  for (const Json& each : line) {
    if (!is_answer(each)) return std::nullopt;
    answers.push_back({each[0].get<double>(), each[1].get<bool>(), each[2].get<int64_t>()});
  }
  return answers;
}

struct Earlier {
  std::vector<Answers> answers;
  uint64_t num_bytes = 0;  // up to the end of the last whole window
};

// Stops at the first line that this program has not written so.
Earlier read_earlier(const fs::path& file, const std::string& identity) {
  Earlier earlier;
  std::ifstream in(file, std::ios::binary);
  std::string text;
  if (!std::getline(in, text) || in.eof()) return earlier;
  const Json head = read_ordered_json(text);
  if (!head.is_object() || !head.contains("evaluation") || head["evaluation"] != identity) return earlier;
  uint64_t at = text.size() + 1;
  earlier.num_bytes = at;
  std::vector<Answers> window;
  while (std::getline(in, text) && !in.eof()) {
    at += text.size() + 1;
    const Json line = read_ordered_json(text);
    if (line.is_object() && line.contains(kWindowEnd)) {
      if (line[kWindowEnd] != earlier.answers.size() + window.size()) break;
      std::ranges::move(window, std::back_inserter(earlier.answers));
      window.clear();
      earlier.num_bytes = at;
      continue;
    }
    auto answers = answers_of(line);
    if (!answers) break;
    window.push_back(std::move(*answers));
  }
  return earlier;
}

// Whether anything would be lost with the file.
bool has_windows(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  while (std::getline(in, line))
    if (line.starts_with(fmt::format("{{\"{}\"", kWindowEnd))) return true;
  return false;
}

}  // namespace

AnswersJournal::Lock::Lock(const fs::path& file)
    : descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor < 0) fail_errno("cannot open", file.string());
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // not every file system has locks
  ::close(descriptor);
  fail<ConfigError>(
      "{} is being written by another process, which evaluates the same; wait for it, or name another "
      "file with --out",
      file.string());
}

AnswersJournal::Lock::~Lock() { ::close(descriptor); }

AnswersJournal::AnswersJournal(const fs::path& file, const std::string& identity) : file_(file), lock_(file) {
  Earlier earlier = read_earlier(file, identity);
  ATHANOR_CHECK(earlier.num_bytes > 0 || !has_windows(file),
                "{} is of an evaluation that is not finished, with another model, other tasks, rows or options; remove "
                "it, or name another file with --out",
                file.string());
  with_io_errors([&] { fs::resize_file(file, earlier.num_bytes); });
  earlier_ = std::move(earlier.answers);
  out_.emplace(file);
  if (earlier.num_bytes == 0) out_->append(Json{{"evaluation", identity}}.dump() + "\n");
  total_ = earlier_.size();
}

AnswersJournal::~AnswersJournal() {
  std::error_code ignored;
  if (total_ == 0) fs::remove(file_, ignored);  // it ends before its first window
}

void AnswersJournal::append(const std::vector<Answers>& window) {
  std::string lines;
  for (const Answers& answers : window) lines += line_of(answers);
  total_ += window.size();
  out_->append(lines + Json{{kWindowEnd, total_}}.dump() + "\n");
}

void AnswersJournal::remove() {
  out_.reset();
  fs::remove(file_);
}

}  // namespace athanor::inline eval
