#include "base/log.h"

#include <fmt/core.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/append_file.h"
#include "base/error.h"

namespace athanor::log {
namespace {

// The sink behind log::RankFile (base/log.h): the log file of a rank other than the first.
// Messages before the first warning are dropped; so a rank without one makes no file.
class RankFileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // @param max_kept  messages that are kept until the file is known; later ones are lost.
  explicit RankFileSink(size_t max_kept) : max_kept_(max_kept) {}
  void open(std::filesystem::path path, std::function<int64_t()> step) {
    const std::lock_guard lock(mutex_);
    path_ = std::move(path);
    step_ = std::move(step);
    for (const auto& line : std::exchange(kept_, {})) write(line);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    file_.reset();
    path_.clear();
    step_ = nullptr;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    has_warned_ |= message.level >= spdlog::level::warn;
    if (!has_warned_) return;
    const std::string said(message.payload.data(), message.payload.size());
    const int64_t step = step_ ? step_() : 0;
    const std::string at_step = fmt::format("step {}:", step);
    const std::string text = step > 0 && said.find(at_step) == std::string::npos ? at_step + " " + said : said;
    spdlog::details::log_msg with_step = message;
    with_step.payload = text;
    spdlog::memory_buf_t line;
    formatter_->format(with_step, line);
    if (!path_.empty()) return write(fmt::to_string(line));
    if (kept_.size() < max_kept_) kept_.push_back(fmt::to_string(line));
  }
  void flush_() override {}

  void write(const std::string& line) {
    try {
      if (!file_) {
        std::error_code ignored;  // opening the file tells why
        std::filesystem::create_directories(path_.parent_path(), ignored);
        file_ = std::make_unique<AppendFile>(path_);
      }
      file_->append(line);
    } catch (const IoError& error) {
      if (!std::exchange(has_lost_, true))
        fmt::print(stderr, "{}: the run continues, and this message is not in the file: {}", error.what(), line);
    }
  }

  const size_t max_kept_;
  std::filesystem::path path_;  // empty until it is known
  std::function<int64_t()> step_;
  std::unique_ptr<AppendFile> file_;
  std::vector<std::string> kept_;
  bool has_warned_ = false, has_lost_ = false;
};

}  // namespace

namespace fs = std::filesystem;
namespace {

// The file of a run is opened when all checks that may refuse the run have passed; the lines logged until then are
// written into it as well.
constexpr size_t kLinesBeforeTheFile = 1000;
constexpr const char* kFilePattern = "%Y-%m-%dT%H:%M:%S%z %L %v";

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The line below all others. Every write to the terminal removes it first and draws it again.
class StatusLine {
 public:
  void set(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!is_terminal_) return;
    erase();
    text_ = text;
    draw();
  }
  template <class Write>
  void around(Write write) {
    const std::lock_guard lock(mutex_);
    erase();
    write();
    draw();
  }

 private:
  void erase() const {
    if (!text_.empty()) std::fputs("\r\033[K", stderr);
  }
  void draw() const {
    if (text_.empty()) return;
    struct winsize size {};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    std::fputs(text_.substr(0, known ? size.ws_col - 1 : 79).c_str(), stderr);
    std::fflush(stderr);
  }

  std::mutex mutex_;
  std::string text_;
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
};

StatusLine& status_line() {
  static StatusLine line;
  return line;
}

class StderrSink : public spdlog::sinks::stderr_color_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    // Errors name their rank themselves.
    const std::string text = fmt::format("{}{}", message.level < spdlog::level::err ? speaker_ : "",
                                         std::string_view(message.payload.data(), message.payload.size()));
    spdlog::details::log_msg named = message;
    named.payload = text;
    status_line().around([&] { spdlog::sinks::stderr_color_sink_mt::log(named); });
  }
  void set_speaker(std::string speaker) { speaker_ = std::move(speaker); }

 private:
  std::string speaker_;  // "rank 3 (node7): ", or empty
};

// What the logger writes to. Only the thread that trains exchanges sinks, before other threads log.
struct Outputs {
  std::shared_ptr<StderrSink> terminal = std::make_shared<StderrSink>();
  std::shared_ptr<RankFileSink> rank_file;  // null on the first rank
};

Outputs& outputs() {
  static Outputs all;
  return all;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("athanor", outputs().terminal);
    made->set_pattern("%H:%M:%S %^%L%$ %v");
    made->sinks().push_back(std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kLinesBeforeTheFile));
    const char* wanted = std::getenv("ATHANOR_LOG");
    const auto level = spdlog::level::from_str(wanted ? wanted : "info");
    const bool is_known = level != spdlog::level::off || std::string_view(wanted) == "off";
    made->set_level(is_known ? level : spdlog::level::info);
    if (!is_known) made->warn("ATHANOR_LOG is \"{}\", but the levels are debug, info, warn, error and off", wanted);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }

void also_to_file(const std::string& path) {
  auto& sinks = logger().sinks();
  const auto said = sinks.size() > 1 ? std::dynamic_pointer_cast<spdlog::sinks::ringbuffer_sink_mt>(sinks[1]) : nullptr;
  if (path.empty()) return sinks.resize(1);
  auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
  sinks.resize(1);
  file->set_pattern(kFilePattern);
  if (said) {
    for (const auto& line : said->last_raw()) file->log(line);
  }
  sinks.push_back(std::move(file));
  logger().flush_on(spdlog::level::info);
}

void line(Level level, std::string_view text) {
  logger().log(to_spdlog(level), fmt::string_view(text.data(), text.size()));
}

std::optional<int> shown_rank(int num_ranks) {
  const char* text = std::getenv("ATHANOR_LOG_RANK");
  if (!text) return {};
  const char* end = text + std::strlen(text);
  int rank = 0;
  const auto [rest, error] = std::from_chars(text, end, rank);
  ATHANOR_CHECK(error == std::errc{} && rest == end && rank >= 0 && rank < num_ranks,
                "ATHANOR_LOG_RANK is \"{}\", but it takes the number of one rank, {}; correct it, or unset it", text,
                num_ranks == 1 ? "which is 0 in this job" : fmt::format("0 to {} in this job", num_ranks - 1));
  return rank;
}

void speak_as_rank(int rank, const std::string& host, bool is_shown) {
  auto& [terminal, rank_file] = outputs();
  terminal->set_level(is_shown ? spdlog::level::trace : spdlog::level::err);
  if (is_shown) terminal->set_speaker(fmt::format("rank {} ({}): ", rank, host));
  rank_file = std::make_shared<RankFileSink>(kLinesBeforeTheFile);
  rank_file->set_pattern(kFilePattern);
  logger().sinks() = {terminal, rank_file};
}

void RankFile::open(fs::path path, std::function<int64_t()> step) {
  if (const auto& sink = outputs().rank_file) sink->open(std::move(path), std::move(step));
}

RankFile::~RankFile() {
  if (const auto& sink = outputs().rank_file) sink->close();
}

Level level_on_all() { return outputs().rank_file ? Level::kInfo : Level::kWarn; }

void set_status(const std::string& text) { status_line().set(text); }

}  // namespace athanor::log
