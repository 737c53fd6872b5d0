#include "gyre/jobs/hub/internal/stream_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"

namespace gyre::jobs::hub::internal {

namespace stream_message = orders::stream_message;

StreamTable::~StreamTable() {
  for (const auto& [number, open] : streams_) {
    if (const auto stream = open.stream.lock()) stream->close("the service was stopped; try again");
  }
}

void StreamTable::came(const std::string& node, const Connection& connection, Carries carries) {
  carriers_[node] = {connection, carries};
}

void StreamTable::gone(const std::string& node, const Connection& connection) {
  const auto found = carriers_.find(node);
  if (found != carriers_.end() && found->second.connection == connection) carriers_.erase(found);
  std::erase_if(streams_, [&](const auto& each) {
    if (each.second.connection != connection) return false;
    if (const auto stream = each.second.stream.lock()) {
      stream->close(fmt::format("the service has lost the connection to node {}; try again", node));
    }
    return true;
  });
}

void StreamTable::open(std::uint32_t number, const std::string& node, const orders::StreamRequest& request,
                       const std::shared_ptr<NodeStream>& stream) {
  const auto found = carriers_.find(node);
  if (found == carriers_.end()) {
    return stream->close(fmt::format("node {} is not connected to the service at present; try again", node));
  }
  const Carries& carries = found->second.carries;
  if (request.command ? !carries.shells : !carries.streams) {
    return stream->close(fmt::format(
        "the node program of {} is of an earlier version of Gyre; it is replaced once the node is free", node));
  }
  const Connection& connection = found->second.connection;
  const auto open =
      std::ranges::count_if(streams_, [&](const auto& each) { return each.second.connection == connection; });
  if (static_cast<std::size_t>(open) >= orders::kMostStreams) {
    return stream->close(
        fmt::format("node {} has {} connections open already; close some of them", node, orders::kMostStreams));
  }
  streams_[number] = {connection, stream};
  connection->send(stream_message::kOpen, orders::encode_stream(number, as_bytes(encode(request))));
}

void StreamTable::send(std::uint32_t number, std::uint16_t type, const Bytes& bytes) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return;  // It is over.
  found->second.connection->send(type, orders::encode_stream(number, bytes));
  if (type == stream_message::kClosed) streams_.erase(found);
}

void StreamTable::deliver(const Connection& connection, const net::Message& message) {
  const orders::StreamMessage part = orders::stream_message_from(message);
  const auto found = streams_.find(part.stream);
  if (found == streams_.end() || found->second.connection != connection) return;  // It was closed meanwhile.
  const auto stream = found->second.stream.lock();
  if (stream) stream->deliver(part);
  if (part.type == stream_message::kClosed) streams_.erase(found);
}

}  // namespace gyre::jobs::hub::internal
