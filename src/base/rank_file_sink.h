#pragma once
// The sink behind log::RankFile (base/log.h): the log file of a rank other than the first. Only log.cpp includes this.

#include <fmt/core.h>
#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <cstdio>
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

/// Messages before the first warning are dropped; so a rank without one makes no file.
class RankFileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// @param max_kept  messages that are kept until the file is known; later ones are lost.
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

}  // namespace athanor::log
