#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace athanor::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("athanor", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S %^%L%$ %v");
    if (const char* level = std::getenv("ATHANOR_LOG")) made->set_level(spdlog::level::from_str(level));
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }

void also_to_file(const std::string& path) {
  auto& sinks = logger().sinks();
  sinks.resize(1);
  if (path.empty()) return;
  auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
  file->set_pattern("%Y-%m-%dT%H:%M:%S%z %L %v");
  sinks.push_back(std::move(file));
  logger().flush_on(spdlog::level::info);
}

void line(Level level, std::string_view text) {
  logger().log(to_spdlog(level), fmt::string_view(text.data(), text.size()));
}

}  // namespace athanor::log
