#pragma once

#include <cstddef>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"

namespace gyre::jobs::node::internal {

/// Values of JSON over a stream socket, a line each. One thread may send() while another calls next(); otherwise not
/// thread-safe.
class JsonLines {
 public:
  /// A received line may have `longest` bytes. `peer` names the other end in messages.
  JsonLines(UniqueFd socket, std::size_t longest, std::string peer);

  /// Returns once all of it is sent. Error(kPeerLost) when the peer has gone.
  void send(const nlohmann::json& value);
  /// Never waits for a peer that does not read: sends what the socket takes, and the rest in next().
  /// Error(kPeerLost); Error(kResourceExhausted) when too much has not been read. For the thread that calls next().
  void post(const nlohmann::json& value);
  /// The next value; nothing at the deadline, or when one of `wake_fds` has become readable. Error(kPeerLost) when the
  /// peer has gone, Error(kProtocol, kCorruptData) for what is not such a line.
  std::optional<nlohmann::json> next(Deadline deadline, std::initializer_list<int> wake_fds);

 private:
  static constexpr std::size_t kMostWakers = 2;
  static constexpr std::size_t kMostUnread = std::size_t{128} << 20;

  std::optional<nlohmann::json> next_line();
  void flush();
  void receive();

  UniqueFd socket_;
  std::size_t longest_;
  std::string peer_;
  std::string input_;
  std::size_t searched_ = 0;  ///< Of `input_`, for the end of its first line.
  std::string output_;
};

}  // namespace gyre::jobs::node::internal
