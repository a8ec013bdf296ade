#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace athanor::log {
namespace {

// The file of a run is opened when all checks that may refuse the run have passed; the lines logged until then are
// written into it as well.
constexpr size_t kLinesBeforeTheFile = 1000;

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
    status_line().around([&] { spdlog::sinks::stderr_color_sink_mt::log(message); });
  }
};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("athanor", std::make_shared<StderrSink>());
    made->set_pattern("%H:%M:%S %^%L%$ %v");
    made->sinks().push_back(std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kLinesBeforeTheFile));
    if (const char* level = std::getenv("ATHANOR_LOG")) made->set_level(spdlog::level::from_str(level));
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
  file->set_pattern("%Y-%m-%dT%H:%M:%S%z %L %v");
  if (said) {
    for (const auto& line : said->last_raw()) file->log(line);
  }
  sinks.push_back(std::move(file));
  logger().flush_on(spdlog::level::info);
}

void line(Level level, std::string_view text) {
  logger().log(to_spdlog(level), fmt::string_view(text.data(), text.size()));
}

void set_status(const std::string& text) { status_line().set(text); }

}  // namespace athanor::log
