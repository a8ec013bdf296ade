#pragma once
// Serves one page to browsers, over HTTP. Nothing can be changed through it: it answers GET and HEAD, reads no body,
// and has two paths.
//
//   /         the page
//   /version  a short text, which changes when the page does
//
// At the address of this machine's own (the default), a request must be for such a host: otherwise any page that a user
// of this machine opens could read this one under a name that it makes point here (DNS rebinding).

#include <functional>
#include <memory>
#include <string>

namespace athanor::inline cli {

struct PageSource {
  std::function<std::string()> version;
  /// Called again when the version has changed. Both may throw Error: readers then see its message.
  std::function<std::string()> page;
};

class PageServer {
 public:
  /// Listens from now on. @param port  0: any that is free.
  /// @throws ConfigError if that is not possible, with the reason.
  PageServer(const std::string& address, int port, PageSource source);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  std::string url() const;
  /// Returns whether only programs of this machine can reach it.
  bool is_local() const;
  /// Answers until `ends` returns true, which is asked ten times a second.
  void serve(const std::function<bool()>& ends);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::inline cli
