#include "gyre/engine/internal/negotiation.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/engine/internal/negotiation_generated.h"

namespace gyre::engine::internal {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Bytes finished_bytes(const FlatBufferBuilder& builder) {
  const auto raw = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {raw.begin(), raw.end()};
}

template <typename Root>
const Root& verified(std::span<const std::byte> bytes, const char* what) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (!verifier.VerifyBuffer<Root>(nullptr)) {
    throw Error(ErrorCode::kProtocol, fmt::format("a peer sent {} bytes that are not a valid {}", bytes.size(), what));
  }
  return *flatbuffers::GetRoot<Root>(data);
}

/// Tables are optional elements of a vector as far as the verifier is concerned; loops over null are over nothing.
template <typename Vector>
std::size_t length(const Vector* vector) {
  return vector == nullptr ? 0 : vector->size();
}

std::vector<std::int64_t> to_vector(const flatbuffers::Vector<std::int64_t>* values) {
  if (values == nullptr) return {};
  return {values->begin(), values->end()};
}

Offset<wire::Signature> encode_signature(FlatBufferBuilder& builder, const Signature& signature) {
  const auto shape = builder.CreateVector(signature.shape);
  const auto splits = signature.splits.empty() ? 0 : builder.CreateVector(signature.splits);
  const auto group = signature.group.empty() ? 0 : builder.CreateString(signature.group);
  return wire::CreateSignature(builder, static_cast<std::uint8_t>(signature.kind),
                               static_cast<std::uint8_t>(signature.type),
                               static_cast<std::uint8_t>(signature.operation), shape, signature.prescale,
                               signature.postscale, signature.root, splits, group, signature.group_size);
}

Signature decode_signature(const wire::Signature& message) {
  const auto type = collectives::data_type_from_number(message.type());
  const auto operation = collectives::reduce_operation_from_number(message.operation());
  const bool kind_known = message.kind() >= static_cast<std::uint8_t>(OperationKind::kAllreduce) &&
                          message.kind() <= static_cast<std::uint8_t>(OperationKind::kBarrier);
  if (!type || !operation || !kind_known) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("a peer announced an operation of unknown kind {}, type {} or reduction {}", message.kind(),
                            message.type(), message.operation()));
  }
  Signature signature;
  signature.kind = static_cast<OperationKind>(message.kind());
  signature.type = *type;
  signature.operation = *operation;
  signature.shape = to_vector(message.shape());
  signature.prescale = message.prescale();
  signature.postscale = message.postscale();
  signature.root = message.root();
  signature.splits = to_vector(message.splits());
  if (message.group() != nullptr) signature.group = message.group()->str();
  signature.group_size = message.group_size();
  return signature;
}

}  // namespace

Bytes AnnouncementEncoder::encode(const AnnouncementContent& content) {
  FlatBufferBuilder builder;
  std::vector<std::uint32_t> known;
  std::vector<Offset<wire::NewOperation>> added;
  for (const Announced& operation : content.operations) {
    const auto found = known_.find(operation.name);
    if (found != known_.end() && found->second.signature == operation.signature) {
      known.push_back(found->second.number);
      continue;
    }
    std::uint32_t number = found != known_.end() ? found->second.number : 0;
    if (number == 0 && !operation.transient && last_number_ < kMostRememberedNames) number = ++last_number_;
    if (number != 0) known_[operation.name] = {number, operation.signature};
    const auto signature = encode_signature(builder, operation.signature);
    added.push_back(wire::CreateNewOperation(builder, number, builder.CreateString(operation.name), signature));
  }
  const auto known_offset = builder.CreateVector(known);
  const auto added_offset = builder.CreateVector(added);
  builder.Finish(wire::CreateAnnouncement(builder, known_offset, added_offset, content.leaving));
  return finished_bytes(builder);
}

AnnouncementContent AnnouncementDecoder::decode(std::span<const std::byte> bytes) {
  const auto& message = verified<wire::Announcement>(bytes, "announcement");
  AnnouncementContent content;
  content.leaving = message.leaving();
  for (flatbuffers::uoffset_t i = 0; i < length(message.known()); ++i) {
    const auto found = known_.find(message.known()->Get(i));
    if (found == known_.end()) {
      throw Error(ErrorCode::kProtocol, fmt::format("a peer announced operation number {}, which it never introduced",
                                                    message.known()->Get(i)));
    }
    content.operations.push_back(found->second);
  }
  for (flatbuffers::uoffset_t i = 0; i < length(message.added()); ++i) {
    const auto* added = message.added()->Get(i);
    Announced operation{added->name()->str(), decode_signature(*added->signature()), added->number() == 0};
    if (added->number() > kMostRememberedNames) {
      throw Error(ErrorCode::kProtocol, fmt::format("a peer numbered an operation {}", added->number()));
    }
    if (added->number() != 0) known_[added->number()] = operation;
    content.operations.push_back(std::move(operation));
  }
  return content;
}

Bytes OrderEncoder::encode(const Order& order) {
  FlatBufferBuilder builder;
  std::vector<Offset<wire::Bucket>> buckets;
  for (const Bucket& bucket : order.buckets) {
    std::vector<Offset<wire::OrderedOperation>> operations;
    for (const OrderedOperation& operation : bucket) {
      const auto found = numbers_.find(operation.name);
      std::uint32_t number = found != numbers_.end() ? found->second : 0;
      const bool introduce = number == 0;
      if (introduce && !operation.transient && numbers_.size() < kMostRememberedNames) {
        number = static_cast<std::uint32_t>(numbers_.size()) + 1;
        numbers_[operation.name] = number;
      }
      const auto name = introduce ? builder.CreateString(operation.name) : 0;
      const auto sizes = operation.sizes.empty() ? 0 : builder.CreateVector(operation.sizes);
      operations.push_back(wire::CreateOrderedOperation(builder, number, name, sizes));
    }
    const auto operations_offset = builder.CreateVector(operations);
    buckets.push_back(wire::CreateBucket(builder, operations_offset));
  }
  std::vector<Offset<wire::Refusal>> refusals;
  for (const Refusal& refusal : order.refusals) {
    const auto name = builder.CreateString(refusal.name);
    const auto message = builder.CreateString(refusal.message);
    refusals.push_back(wire::CreateRefusal(builder, name, static_cast<int>(refusal.code), message));
  }
  const auto buckets_offset = builder.CreateVector(buckets);
  const auto refusals_offset = builder.CreateVector(refusals);
  builder.Finish(wire::CreateOrder(builder, buckets_offset, refusals_offset));
  return finished_bytes(builder);
}

Order OrderDecoder::decode(std::span<const std::byte> bytes) {
  const auto& message = verified<wire::Order>(bytes, "order");
  Order order;
  for (flatbuffers::uoffset_t i = 0; i < length(message.buckets()); ++i) {
    const auto* operations = message.buckets()->Get(i)->operations();
    Bucket bucket;
    for (flatbuffers::uoffset_t j = 0; j < length(operations); ++j) {
      const auto* operation = operations->Get(j);
      OrderedOperation ordered;
      ordered.sizes = to_vector(operation->sizes());
      if (operation->name() != nullptr) {
        ordered.name = operation->name()->str();
        if (operation->number() != 0) names_[operation->number()] = ordered.name;
      } else {
        const auto found = names_.find(operation->number());
        if (found == names_.end()) {
          throw Error(ErrorCode::kProtocol,
                      fmt::format("the coordinator ordered operation number {}, which it never introduced",
                                  operation->number()));
        }
        ordered.name = found->second;
      }
      bucket.push_back(std::move(ordered));
    }
    order.buckets.push_back(std::move(bucket));
  }
  for (flatbuffers::uoffset_t i = 0; i < length(message.refusals()); ++i) {
    const auto* refusal = message.refusals()->Get(i);
    order.refusals.push_back(
        {refusal->name()->str(), static_cast<ErrorCode>(refusal->code()), refusal->message()->str()});
  }
  return order;
}

}  // namespace gyre::engine::internal
