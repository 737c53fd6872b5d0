#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/file.h"
#include "gyre/launch/internal/record_log.h"

namespace gyre::launch {

/// One connection to the socket of `gyre launch`: takes requests, a line of JSON each, and follows the records if asked
/// to. A reader that does not read costs a bounded buffer and nobody's time. Not thread-safe.
class RecordReader {
 public:
  static constexpr std::size_t kLongestRequestBytes = 4096;

  /// Answers a request; nothing: no answer.
  using Answer = std::function<std::optional<nlohmann::json>(const nlohmann::json& request)>;

  explicit RecordReader(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  /// Takes what has arrived. {"request": "follow", "after": N} is handled here, the rest by `answer`.
  void receive(const Answer& answer);
  /// Writes what can be written now.
  void send(const RecordLog& log);
  /// Whether send() would have something to write.
  bool has_more(const RecordLog& log) const { return !output_.empty() || (next_ && *next_ <= log.last()); }
  /// The other side has gone, or does not keep to the protocol.
  bool closed() const { return !socket_; }

 private:
  void handle(const std::string& line, const Answer& answer);
  void say(const nlohmann::json& line);
  void refill(const RecordLog& log);

  UniqueFd socket_;
  std::string input_;
  std::string output_;
  std::optional<std::uint64_t> next_;  ///< The record to send next, once it follows them.
};

}  // namespace gyre::launch
