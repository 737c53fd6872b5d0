#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
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
  /// The same with a descriptor, for a peer that takes them.
  void post(const nlohmann::json& value, UniqueFd descriptor);
  /// From now on keeps descriptors that come with lines; others go unseen. Before next().
  void take_descriptors() { takes_descriptors_ = true; }
  /// That of the first line that came with one whose descriptor was not asked for yet; empty where there is none.
  UniqueFd descriptor();
  /// The next value; nothing at the deadline, or when one of `wake_fds` has become readable. Error(kPeerLost) when the
  /// peer has gone, Error(kProtocol, kCorruptData) for what is not such a line.
  std::optional<nlohmann::json> next(Deadline deadline, std::initializer_list<int> wake_fds);

 private:
  static constexpr std::size_t kMostWakers = 2;
  static constexpr std::size_t kMostUnread = std::size_t{128} << 20;

  std::optional<nlohmann::json> next_line();
  void flush();
  void receive();
  ssize_t receive_some(std::span<char> bytes);

  struct Outgoing {
    std::size_t at = 0;  ///< Of `output_`, where its line begins.
    UniqueFd descriptor;
  };

  UniqueFd socket_;
  std::size_t longest_;
  std::string peer_;
  std::string input_;
  std::size_t searched_ = 0;  ///< Of `input_`, for the end of its first line.
  std::string output_;
  std::deque<Outgoing> outgoing_;
  bool takes_descriptors_ = false;
  std::deque<UniqueFd> descriptors_;
};

}  // namespace gyre::jobs::node::internal
