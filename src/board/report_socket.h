#pragma once
// The socket on which a collector answers, and how others ask it. Who connects gets one report and the end of the
// stream; nothing has to be sent.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace athanor::board {

/// The collector's side. Only the user whose run it is may connect.
class ReportSocket {
 public:
  /// @throws IoError.
  explicit ReportSocket(const std::filesystem::path& path);
  ~ReportSocket();
  ReportSocket(const ReportSocket&) = delete;
  ReportSocket& operator=(const ReportSocket&) = delete;

  int descriptor() const { return descriptor_; }
  /// Answers one process that has connected. One that does not read loses its answer after a second.
  void answer(const std::function<std::string()>& text) const;

 private:
  int descriptor_ = -1;
};

/// Returns the answer of the collector at `path`; nothing if there is none, or if it does not answer within two
/// seconds.
std::optional<std::string> ask_collector(const std::filesystem::path& path);

}  // namespace athanor::board
