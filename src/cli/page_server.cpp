#include "cli/page_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <fmt/core.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "plot/svg_parts.h"

namespace athanor::inline cli {
namespace {

constexpr ev_ssize_t kMostHeaderBytes = 16 << 10;
constexpr int kIdleSeconds = 30;  // a connection is closed then
constexpr timeval kLook{0, 100'000};

using Header = std::pair<const char*, const char*>;
constexpr std::array<Header, 4> kHeaders{{{"Cache-Control", "no-store"},
                                          {"X-Content-Type-Options", "nosniff"},
                                          {"X-Frame-Options", "DENY"},
                                          {"Referrer-Policy", "no-referrer"}}};

bool is_ipv6(const std::string& address) { return address.find(':') != address.npos; }

bool is_loopback(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return false;
}

// The host in the value of a Host header, which may have a port: "[::1]:8080", "localhost".
std::string host_of(std::string_view header) {
  const bool in_brackets = header.starts_with('[');
  const size_t end = in_brackets ? header.find(']') : header.find(':');
  std::string host(in_brackets ? header.substr(1, end == header.npos ? end : end - 1) : header.substr(0, end));
  std::string_view port = end == header.npos ? "" : header.substr(in_brackets ? end + 1 : end);
  if (port.starts_with(':')) port.remove_prefix(1);
  if ((in_brackets && end == header.npos) || port.find_first_not_of("0123456789") != port.npos) return "";
  if (host.ends_with('.')) host.pop_back();
  for (char& letter : host) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return host;
}

std::string error_page(const std::string& message) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" "
      "content=\"5\"><title>No report yet</title></head>\n<body><p>{}</p><p>This page tries again every 5 "
      "seconds.</p></body></html>\n",
      escape_xml(message));
}

struct Content {
  int code = 200;
  std::shared_ptr<const std::string> text;

  Content(int given_code, std::string given_text)
      : code(given_code), text(std::make_shared<const std::string>(std::move(given_text))) {}
  explicit Content(std::shared_ptr<const std::string> page) : text(std::move(page)) {}
};

// Appends the text without copying it: however many readers are slow, it is in memory once.
void append_shared(evbuffer* body, const std::shared_ptr<const std::string>& text) {
  auto* holder = new std::shared_ptr<const std::string>(text);
  const auto release = [](const void*, size_t, void* held) {
    delete static_cast<std::shared_ptr<const std::string>*>(held);
  };
  if (::evbuffer_add_reference(body, text->data(), text->size(), release, holder) != 0) delete holder;
}

struct FreeBase {
  void operator()(event_base* base) const { ::event_base_free(base); }
};
struct FreeHttp {
  void operator()(evhttp* http) const { ::evhttp_free(http); }
};

}  // namespace

struct PageServer::Impl {
  std::string address;
  PageSource source;
  std::unique_ptr<event_base, FreeBase> base;
  std::unique_ptr<evhttp, FreeHttp> http;
  evconnlistener* listener = nullptr;  // belongs to http
  int port = 0;
  std::string shown_version;
  // The last page. Readers who have not taken all of it share it with this.
  std::shared_ptr<const std::string> page;
  bool local = true;

  void answer(evhttp_request* request);
  bool is_for_this_host(evhttp_request* request) const;
  Content content_of(std::string_view path);
};

bool PageServer::Impl::is_for_this_host(evhttp_request* request) const {
  if (!local) return true;
  const char* header = ::evhttp_find_header(::evhttp_request_get_input_headers(request), "Host");
  if (!header) return false;
  const std::string host = host_of(header);
  return host == "localhost" || is_loopback(host);
}

Content PageServer::Impl::content_of(std::string_view path) {
  if (path != "/" && path != "/version") return {404, "there is only /\n"};
  try {
    const std::string version = source.version();
    if (path == "/version") return {200, version + "\n"};
    if (version != shown_version || !page) {
      page = std::make_shared<const std::string>(source.page());
      shown_version = version;
    }
    return Content(page);
  } catch (const Error& error) {
    return {503, path == "/" ? error_page(error.what()) : std::string(error.what()) + "\n"};
  }
}

void PageServer::Impl::answer(evhttp_request* request) {
  evkeyvalq* headers = ::evhttp_request_get_output_headers(request);
  for (const auto& [name, value] : kHeaders) ::evhttp_add_header(headers, name, value);
  const auto method = ::evhttp_request_get_command(request);
  const char* path = ::evhttp_uri_get_path(::evhttp_request_get_evhttp_uri(request));
  Content content(200, "");
  if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
    ::evhttp_add_header(headers, "Allow", "GET, HEAD");
    content = Content(405, "the report can only be read\n");
  } else if (!is_for_this_host(request)) {
    content = Content(403, "this address answers to localhost only\n");
  } else {
    content = content_of(path ? path : "");
  }
  const bool is_html = content.text->starts_with('<');
  ::evhttp_add_header(headers, "Content-Type", is_html ? "text/html; charset=utf-8" : "text/plain; charset=utf-8");
  const std::unique_ptr<evbuffer, decltype(&::evbuffer_free)> body(::evbuffer_new(), &::evbuffer_free);
  if (method == EVHTTP_REQ_HEAD)  // libevent would send the body, too
    ::evhttp_add_header(headers, "Content-Length", std::to_string(content.text->size()).c_str());
  else
    append_shared(body.get(), content.text);
  ::evhttp_send_reply(request, content.code, nullptr, body.get());
}

PageServer::PageServer(const std::string& address, int port, PageSource source) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  in6_addr any{};
  ATHANOR_CHECK(::inet_pton(is_ipv6(address) ? AF_INET6 : AF_INET, address.c_str(), &any) == 1,
                "--address {}: expected an address such as 127.0.0.1 or ::1", address);
  impl.address = address;
  impl.local = is_loopback(address);
  impl.source = std::move(source);
  impl.base.reset(::event_base_new());
  impl.http.reset(::evhttp_new(impl.base.get()));
  errno = 0;
  evhttp_bound_socket* socket =
      ::evhttp_bind_socket_with_handle(impl.http.get(), address.c_str(), static_cast<uint16_t>(port));
  ATHANOR_CHECK(socket != nullptr, "cannot listen at {}, port {}: {}; choose another with --port", address, port,
                std::strerror(errno));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(::evhttp_bound_socket_get_fd(socket), reinterpret_cast<sockaddr*>(&bound), &size);
  impl.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  impl.listener = ::evhttp_bound_socket_get_listener(socket);
  // Without free file descriptors, accepting would fail again and again: it is put off until serve() looks again.
  ::evconnlistener_set_error_cb(impl.listener,
                                [](evconnlistener* listener, void*) { ::evconnlistener_disable(listener); });
  ::event_set_log_callback([](int, const char*) {});
  ::evhttp_set_timeout(impl.http.get(), kIdleSeconds);
  ::evhttp_set_max_headers_size(impl.http.get(), kMostHeaderBytes);
  ::evhttp_set_max_body_size(impl.http.get(), 0);
  ::evhttp_set_allowed_methods(impl.http.get(), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
                                                    EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
  ::evhttp_set_gencb(
      impl.http.get(), [](evhttp_request* request, void* server) { static_cast<Impl*>(server)->answer(request); },
      &impl);
}

PageServer::~PageServer() = default;

std::string PageServer::url() const {
  const std::string& address = impl_->address;
  return fmt::format("http://{}:{}/", is_ipv6(address) ? "[" + address + "]" : address, impl_->port);
}

bool PageServer::is_local() const { return impl_->local; }

void PageServer::serve(const std::function<bool()>& ends) {
  while (!ends()) {
    ::event_base_loopexit(impl_->base.get(), &kLook);
    ::event_base_dispatch(impl_->base.get());
    ::evconnlistener_enable(impl_->listener);
  }
}

}  // namespace athanor::inline cli
