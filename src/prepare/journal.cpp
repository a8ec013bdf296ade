#include "prepare/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace athanor::inline preparation {
namespace {

using nlohmann::json;

constexpr size_t kHashDigits = 16;
constexpr size_t kMaxLineBytes = size_t{1} << 24;  // our lines have a few hundred bytes and a path
constexpr size_t kJournalBytes = size_t{1} << 18;

// Returns "<hash> <json>\n".
std::string framed(const std::string& text) { return fmt::format("{:016x} {}\n", hash_u64(text), text); }

// Returns nothing if the line is damaged.
json parse_line(std::string_view line) {
  if (line.size() < kHashDigits + 1 || line[kHashDigits] != ' ') return json::value_t::discarded;
  const auto text = line.substr(kHashDigits + 1);
  if (line.substr(0, kHashDigits) != fmt::format("{:016x}", hash_u64(text))) return json::value_t::discarded;
  return read_json(text);
}

// Reads the lines of a file, one at a time.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0 && errno != ENOENT) fail_errno("cannot open", path.string());
  }
  ~LineReader() {
    if (fd_ >= 0) ::close(fd_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Returns false at the end, or if no newline follows; is_at_end() distinguishes the two.
  bool next(std::string_view& line) {
    for (;;) {
      const size_t end = buffer_.find('\n', at_);
      if (end != std::string::npos) {
        line = std::string_view(buffer_).substr(at_, end - at_);
        at_ = end + 1;
        return true;
      }
      if (buffer_.size() - at_ > kMaxLineBytes || !refill()) return false;
    }
  }
  bool is_at_end() const { return at_ == buffer_.size(); }

 private:
  bool refill() {
    if (fd_ < 0) return false;
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t filled = buffer_.size();
    buffer_.resize(filled + kJournalBytes);
    ssize_t got = 0;
    do got = ::read(fd_, buffer_.data() + filled, kJournalBytes);
    while (got < 0 && errno == EINTR);
    if (got < 0) fail_errno("cannot read", path_.string());
    buffer_.resize(filled + static_cast<size_t>(got));
    return got > 0;
  }

  std::filesystem::path path_;
  int fd_;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace

bool Journal::read(const std::filesystem::path& path, const Visit& visit) {
  LineReader lines(path);
  bool kept_all = true;
  for (std::string_view line; lines.next(line);) {
    const json parsed = parse_line(line);
    if (parsed.is_discarded()) return false;
    kept_all &= visit(parsed);
  }
  return kept_all && lines.is_at_end();
}

void Journal::rewrite(const std::filesystem::path& path, const Visit& keep) {
  AtomicFile file(path);
  read(path, [&](const json& line) {
    if (keep(line)) file.write(framed(line.dump()));
    return true;
  });
  file.commit();
}

void Journal::append(const json& line) {
  // A path need not be UTF-8; invalid bytes become U+FFFD, since the path is only information for people.
  file_.append(framed(line.dump(-1, ' ', false, json::error_handler_t::replace)));
}

}  // namespace athanor::inline preparation
