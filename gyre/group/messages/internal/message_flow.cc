#include "gyre/group/messages/internal/message_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::group::internal {

void MessageWriter::control(FrameKind kind, std::uint64_t message, Bytes payload) {
  GYRE_CHECK(payload.size() <= kMostControlBytes);
  net::FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.channel = channel_;
  header.collective = message;
  header.step = static_cast<std::uint32_t>(kind);
  header.checksum = xxh3_64(payload);
  controls_.push_back({header, std::move(payload)});
}

void MessageWriter::message(std::uint64_t number, std::span<const std::byte> bytes, const MessageHandle& handle) {
  if (bytes.empty()) {
    handle.complete();  // The offer has said all there is.
    return;
  }
  messages_.push_back({number, bytes, 0, handle});
}

void MessageWriter::start(const net::FrameHeader& header, std::span<const std::byte> payload) {
  encoded_ = net::encode_frame_header(header);
  frame_left_ = encoded_;
  payload_left_ = payload;
}

bool MessageWriter::begin_frame() {
  if (!controls_.empty()) {
    in_control_ = true;
    start(controls_.front().header, controls_.front().payload);
    return true;
  }
  if (messages_.empty()) return false;
  in_control_ = false;
  Message& message = messages_.front();
  const auto piece = message.left.first(std::min(kPieceBytes, message.left.size()));
  message.left = message.left.subspan(piece.size());
  net::FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(piece.size());
  header.channel = channel_;
  header.collective = message.number;
  header.step = static_cast<std::uint32_t>(FrameKind::kPiece);
  header.piece = message.pieces++;
  header.checksum = xxh3_64(piece);
  start(header, piece);
  return true;
}

void MessageWriter::end_frame() {
  if (in_control_) {
    controls_.pop_front();
  } else if (messages_.front().left.empty()) {
    messages_.front().handle.complete();
    messages_.pop_front();
  }
}

void MessageWriter::write() {
  for (;;) {
    if (frame_left_.empty() && payload_left_.empty() && !begin_frame()) return;
    for (std::span<const std::byte>* part : {&frame_left_, &payload_left_}) {
      while (!part->empty()) {
        const std::size_t count = stream_.write_some(*part);
        if (count == 0) return;
        *part = part->subspan(count);
      }
    }
    end_frame();
  }
}

void MessageWriter::fail(const Error& failure) {
  for (const Message& message : messages_) message.handle.fail(failure);
  messages_.clear();
  controls_.clear();
  frame_left_ = {};
  payload_left_ = {};
}

void MessageReader::begin_payload(const Place& place) {
  header_ = net::decode_frame_header(encoded_);
  if (header_.channel != channel_) {
    throw Error(ErrorCode::kProtocol, fmt::format("{} sent a frame of channel {} where {} is due", stream_.peer(),
                                                  header_.channel, channel_));
  }
  payload_bytes_ = 0;
  if (header_.step == static_cast<std::uint32_t>(FrameKind::kPiece)) {
    payload_ = place(header_);
    GYRE_CHECK(payload_.size() == header_.payload_bytes);
    return;
  }
  if (header_.payload_bytes > kMostControlBytes) {
    throw Error(ErrorCode::kProtocol, fmt::format("{} announces {} bytes about a message, at most {} are allowed",
                                                  stream_.peer(), header_.payload_bytes, kMostControlBytes));
  }
  control_.resize(header_.payload_bytes);
  payload_ = control_;
}

void MessageReader::read(const Place& place, const Arrived& arrived) {
  for (;;) {
    if (header_bytes_ < encoded_.size()) {
      const std::size_t count = stream_.read_some(std::span(encoded_).subspan(header_bytes_));
      if (count == 0) return;
      header_bytes_ += count;
      if (header_bytes_ < encoded_.size()) continue;
      begin_payload(place);
    }
    if (payload_bytes_ < payload_.size()) {
      const std::size_t count = stream_.read_some(payload_.subspan(payload_bytes_));
      if (count == 0) return;
      payload_bytes_ += count;
      if (payload_bytes_ < payload_.size()) continue;
    }
    if (xxh3_64(payload_) != header_.checksum) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} bytes from {} fail their checksum: the network or that machine's memory damages data",
                              payload_.size(), stream_.peer()));
    }
    header_bytes_ = 0;
    arrived(header_, payload_);
  }
}

}  // namespace gyre::group::internal
