#pragma once
// The sockets on which a collector answers, and how others ask it. Who connects to the first gets one report and the
// end of the stream; nothing has to be sent. Who connects to the second sends one line first.

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
  /// Takes one process that has connected: its descriptor, which the caller closes; −1 if it has left.
  int take() const;

 private:
  int descriptor_ = -1;
};

/// Reads the line of one that has connected, without its end; "" if it sends none within a second.
std::string read_request(int peer);
/// Sends it a text. One that does not read loses it after a second.
void send_answer(int peer, const std::string& text);

/// Returns the answer of the collector at `path`; nothing if there is none, or if it does not answer in time.
/// @param request  a line with its end; "": nothing is sent.
std::optional<std::string> ask_collector(const std::filesystem::path& path, const std::string& request = "",
                                         int patience_s = 2);

}  // namespace athanor::board
