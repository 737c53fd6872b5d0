#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/net/http/server.h"
#include "gyre/net/socket.h"

// For tests of servers: a client that may send anything.
namespace gyre::net::http {

class RawClient {
 public:
  explicit RawClient(const Endpoint& endpoint)
      : socket_(connect_to(endpoint, Deadline::after(std::chrono::seconds(10)))) {}

  /// False once the server reads no more.
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno == EAGAIN) {
        wait_for(socket_.get(), POLLOUT, Deadline::after(std::chrono::seconds(30)), "the server to read");
      } else {
        return false;
      }
    }
    return true;
  }

  /// Until `text` has come, or the server closed the connection.
  std::string read_until(std::string_view text) {
    std::size_t at = received_.find(text);
    while (at == std::string::npos) {
      const std::size_t searched = received_.size() < text.size() ? 0 : received_.size() - text.size();
      if (!read_some()) break;
      at = received_.find(text, searched);
    }
    const std::size_t end = at == std::string::npos ? received_.size() : at + text.size();
    std::string result = received_.substr(0, end);
    received_.erase(0, end);
    return result;
  }

  /// Everything until the server closes the connection.
  std::string read_all() {
    while (read_some()) {
    }
    return std::exchange(received_, {});
  }

  /// One response with a Content-Length.
  std::string read_response() {
    std::string response = read_until("\r\n\r\n");
    const std::size_t at = response.find("Content-Length: ");
    if (at == std::string::npos) return response;
    const std::size_t length = std::stoul(response.substr(at + 16));
    while (received_.size() < length && read_some()) {
    }
    response += received_.substr(0, length);
    received_.erase(0, length);
    return response;
  }

  std::string ask(std::string_view request) {
    write(request);
    return read_response();
  }

  /// Whether the server has closed the connection, or does so within `limit`.
  bool closed_within(std::chrono::milliseconds limit) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(limit.count())) <= 0) return false;
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK) <= 0;
  }

  int fd() const { return socket_.get(); }

 private:
  bool read_some() {
    wait_for(socket_.get(), POLLIN, Deadline::after(std::chrono::seconds(30)), "the server's response");
    const std::size_t before = received_.size();
    received_.resize(before + 65'536);
    const ssize_t count = ::recv(socket_.get(), received_.data() + before, 65'536, 0);
    received_.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
    return count > 0;
  }

  UniqueFd socket_;
  std::string received_;
};

/// "200"; "" for what is not a response.
inline std::string status_of(std::string_view response) {
  return response.starts_with("HTTP/1.1 ") ? std::string(response.substr(9, 3)) : std::string();
}

inline std::string body_of(std::string_view response) {
  const std::size_t end = response.find("\r\n\r\n");
  return end == std::string_view::npos ? std::string() : std::string(response.substr(end + 4));
}

inline std::string get(std::string_view target, std::string_view headers = "") {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: h\r\n" + std::string(headers) + "\r\n";
}

inline ServerOptions loopback_options() {
  return {.endpoints = {parse_endpoint("tcp:127.0.0.1:0")}, .authenticate = nullptr};
}

}  // namespace gyre::net::http
