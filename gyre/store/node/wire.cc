#include "gyre/store/node/wire.h"

#include <string>

namespace gyre::store::node {

Bytes ReadRequest::encode() const {
  ByteWriter writer;
  writer.u64(fingerprint);
  writer.u64(entry);
  writer.u32(chunk);
  writer.u32(offset_bytes);
  writer.u32(size_bytes);
  writer.u8(only_if_present ? 1 : 0);
  return writer.take();
}

ReadRequest ReadRequest::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "a request to read");
  ReadRequest request;
  request.fingerprint = reader.u64();
  request.entry = reader.u64();
  request.chunk = reader.u32();
  request.offset_bytes = reader.u32();
  request.size_bytes = reader.u32();
  request.only_if_present = reader.u8() != 0;
  return request;
}

Bytes DataReply::encode() const {
  ByteWriter writer;
  writer.u64(members);
  writer.u32(size_bytes);
  return writer.take();
}

DataReply DataReply::decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "a reply of a node");
  DataReply reply;
  reply.members = reader.u64();
  reply.size_bytes = reader.u32();
  return reply;
}

Bytes encode_failure(const Error& error) {
  ByteWriter writer;
  writer.u32(static_cast<std::uint32_t>(error.code()));
  writer.text(error.what());
  return writer.take();
}

Error decode_failure(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "the failure of a node");
  const ErrorCode code = error_code_from_number(static_cast<int>(reader.u32()));
  return {code, std::string(reader.text(reader.remaining()))};
}

}  // namespace gyre::store::node
