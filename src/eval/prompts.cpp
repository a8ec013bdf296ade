#include "eval/prompts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace athanor {
namespace {

constexpr const char* kDash = "-";

class ListedPrompts : public PromptSource {
 public:
  ListedPrompts(std::vector<std::string> texts, std::string option)
      : texts_(std::move(texts)), option_(std::move(option)) {}

  std::optional<PromptText> next(const std::function<void()>&) override {
    if (at_end()) return std::nullopt;
    return prompt(next_++);
  }
  bool at_end() const override { return next_ == texts_.size(); }
  void check_all(const std::function<void(const PromptText&)>& f) const override {
    for (size_t i = 0; i < texts_.size(); ++i) f(prompt(i));
  }

 private:
  PromptText prompt(size_t i) const {
    return {texts_[i], texts_.size() == 1 ? "" : option_ + " number " + std::to_string(i + 1)};
  }
  std::vector<std::string> texts_;
  std::string option_;
  size_t next_ = 0;
};

/// Lines of a file descriptor, which it closes unless it is standard input.
class Lines {
 public:
  Lines(std::string file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}
  ~Lines() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  std::optional<std::string> next(const std::function<void()>& wait) {
    for (;;) {
      if (const size_t end = buffer_.find('\n', searched_); end != std::string::npos) return take(end, 1);
      searched_ = buffer_.size();
      if (ended_) return buffer_.empty() ? std::nullopt : std::optional(take(buffer_.size(), 0));
      if (!is_readable(wait)) return std::nullopt;
      read_more();
    }
  }
  bool at_end() const { return ended_ && buffer_.empty(); }
  int64_t number() const { return number_; }  ///< number of the last line, from 1

 private:
  std::string take(size_t length, size_t newline) {
    std::string line = buffer_.substr(0, length);
    buffer_.erase(0, length + newline);
    searched_ = 0;
    ++number_;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  // Waits until read() would not. A regular file never waits.
  bool is_readable(const std::function<void()>& wait) const {
    constexpr int kLook_ms = 1000;
    for (;;) {
      pollfd look{descriptor_, POLLIN, 0};
      const int ready = ::poll(&look, 1, wait ? kLook_ms : 0);
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) fail_errno("cannot read", file_);
      if (!wait) return false;
      wait();
    }
  }

  void read_more() {
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return;
    if (count < 0) fail_errno("cannot read", file_);
    ended_ = count == 0;
    buffer_.append(bytes.data(), static_cast<size_t>(count));
  }

  std::string file_;
  int descriptor_;
  std::string buffer_;
  size_t searched_ = 0;
  int64_t number_ = 0;
  bool ended_ = false;
};

class PromptLines : public PromptSource {
 public:
  explicit PromptLines(const std::string& file)
      : file_(file), is_json_(file.ends_with(".jsonl")), lines_(file, open(file)) {
    struct stat status {};
    if (file != kDash && ::stat(file.c_str(), &status) == 0) {
      ATHANOR_CHECK_DATA(!S_ISDIR(status.st_mode), "--prompts: {} is a folder; name a file of prompts, one a line",
                         file);
      can_repeat_ = S_ISREG(status.st_mode);
    }
  }

  std::optional<PromptText> next(const std::function<void()>& wait) override {
    const auto line = lines_.next(wait);
    if (!line && lines_.at_end()) require_any(lines_.number());
    return line ? std::optional(prompt(*line, lines_.number())) : std::nullopt;
  }
  bool at_end() const override { return lines_.at_end(); }

  void check_all(const std::function<void(const PromptText&)>& f) const override {
    if (!can_repeat_) return;
    Lines lines(file_, open(file_));
    while (const auto line = lines.next([] {})) f(prompt(*line, lines.number()));
    require_any(lines.number());
  }

 private:
  static int open(const std::string& file) {
    if (file == kDash) return STDIN_FILENO;
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    ATHANOR_CHECK_DATA(descriptor >= 0 || errno != ENOENT,
                       "--prompts: {} is not there; name a file of prompts, one a line, or - for standard input", file);
    if (descriptor < 0) fail_errno("--prompts: cannot open", file);
    return descriptor;
  }
  std::string shown() const { return file_ == kDash ? "standard input" : file_; }

  void require_any(int64_t count) const {
    ATHANOR_CHECK_DATA(count > 0, "--prompts: {} is empty; it needs a prompt on each line", shown());
  }

  PromptText prompt(std::string line, int64_t number) const {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    const std::string name = shown() + " line " + std::to_string(number);
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    const auto invalid = find_invalid_utf8(line);
    ATHANOR_CHECK_DATA(!invalid, "{} has invalid UTF-8 at byte {}; convert it to UTF-8", name, invalid.value_or(0));
    if (is_json_) return {field_of(line, name), name};
    ATHANOR_CHECK_DATA(!line.empty(),
                       "{} is empty; remove it, or, to begin from the end-of-document token, give --prompt \"\" or a "
                       ".jsonl file with {{\"prompt\": \"\"}}",
                       name);
    return {line, name};
  }

  static std::string field_of(const std::string& line, const std::string& name) {
    const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ATHANOR_CHECK_DATA(row.is_object(), "{} is no JSON object; write {{\"prompt\": \"...\"}} on each line", name);
    const auto field = row.find("prompt");
    ATHANOR_CHECK_DATA(field != row.end(), "{} has no field \"prompt\"", name);
    ATHANOR_CHECK_DATA(field->is_string(), "{}: its field \"prompt\" is no string", name);
    return field->get<std::string>();
  }

  std::string file_;
  bool is_json_, can_repeat_ = false;
  Lines lines_;
};

}  // namespace

std::unique_ptr<PromptSource> listed_prompts(std::vector<std::string> texts, const std::string& option) {
  return std::make_unique<ListedPrompts>(std::move(texts), option);
}

std::unique_ptr<PromptSource> prompts_of_file(const std::string& file) { return std::make_unique<PromptLines>(file); }

}  // namespace athanor
