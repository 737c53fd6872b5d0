#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gyre/jobs/hub/node_stream.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/async/message_connection.h"

namespace gyre::jobs::hub::internal {

/// Which stream goes over which node's connection. On the hub's thread.
class StreamTable {
 public:
  using Connection = std::shared_ptr<net::MessageConnection>;

  StreamTable() = default;
  /// All streams are over.
  ~StreamTable();
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  /// What its node program knows of.
  struct Carries {
    bool streams = false;
    bool shells = false;
  };
  void came(const std::string& node, const Connection& connection, Carries carries);
  /// The streams of that connection are over.
  void gone(const std::string& node, const Connection& connection);

  /// Where it cannot be, the stream is closed with the reason.
  void open(std::uint32_t number, const std::string& node, const orders::StreamRequest& request,
            const std::shared_ptr<NodeStream>& stream);
  /// From the stream's client.
  void send(std::uint32_t number, std::uint16_t type, const Bytes& bytes);
  /// From a node. Error(kProtocol | kCorruptData).
  void deliver(const Connection& connection, const net::Message& message);

 private:
  struct Carrier {
    Connection connection;
    Carries carries;
  };
  struct Open {
    Connection connection;
    std::weak_ptr<NodeStream> stream;
  };
  std::map<std::string, Carrier> carriers_;  ///< By node.
  std::map<std::uint32_t, Open> streams_;
};

}  // namespace gyre::jobs::hub::internal
