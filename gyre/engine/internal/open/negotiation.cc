#include "gyre/engine/internal/open/negotiation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "gyre/engine/internal/open/negotiation_generated.h"

namespace gyre::engine::internal {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

/// Of a group; see membership_messages.
constexpr std::int32_t kMostRanks = 1 << 16;

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

/// The verifier looks where a vector's length stands, not whether its elements of 8 bytes stand at multiples of 8: in
/// damaged bytes they need not, so they are copied before they are looked at.
template <typename Element, typename Stored>
std::vector<Element> copied(const flatbuffers::Vector<Stored>* values) {
  static_assert(std::endian::native == std::endian::little, "FlatBuffers are little-endian");
  std::vector<Element> elements(length(values));
  if (!elements.empty()) std::memcpy(elements.data(), values->Data(), elements.size() * sizeof(Element));
  return elements;
}

std::vector<wire::PlanStep> encode_steps(const std::vector<PlanStep>& steps) {
  std::vector<wire::PlanStep> encoded;
  for (const PlanStep& step : steps) encoded.emplace_back(step.plan, step.step);
  return encoded;
}

std::vector<PlanStep> decode_steps(const flatbuffers::Vector<const wire::PlanStep*>* steps) {
  std::vector<PlanStep> decoded;
  for (const auto& step : copied<wire::PlanStep>(steps)) decoded.push_back({step.plan(), step.step()});
  return decoded;
}

Offset<wire::StalledStep> encode_stalled(FlatBufferBuilder& builder, const std::optional<StalledStep>& stalled) {
  if (!stalled) return 0;
  const wire::PlanStep step(stalled->step.plan, stalled->step.step);
  const auto name = builder.CreateString(stalled->plan_name);
  return wire::CreateStalledStep(builder, &step, name, static_cast<std::uint64_t>(stalled->waited.count()));
}

Offset<wire::ThreadState> encode_thread(FlatBufferBuilder& builder, const ThreadState& thread) {
  std::vector<Offset<wire::Awaited>> waits;
  for (const Awaited& awaited : thread.waits) {
    const auto operation = builder.CreateString(awaited.operation);
    const auto description = builder.CreateString(awaited.description);
    const wire::PlanStep step =
        awaited.step ? wire::PlanStep(awaited.step->plan, awaited.step->step) : wire::PlanStep();
    waits.push_back(wire::CreateAwaited(builder, awaited.engine, operation, awaited.step ? &step : nullptr,
                                        awaited.serial, description));
  }
  return wire::CreateThreadState(builder, builder.CreateVector(waits));
}

Offset<wire::StallAnswer> encode_answer(FlatBufferBuilder& builder, const std::optional<StallAnswer>& answer) {
  if (!answer) return 0;
  const auto program = builder.CreateString(answer->program.substr(0, kMostLocationBytes));
  const auto steps = builder.CreateVectorOfStructs(encode_steps(answer->waits_for));
  std::vector<Offset<wire::ThreadState>> threads;
  for (const ThreadState& thread : answer->state.threads) threads.push_back(encode_thread(builder, thread));
  std::vector<wire::OwedStep> owed;
  for (const OwedStep& step : answer->state.owed) {
    owed.emplace_back(step.engine, wire::PlanStep(step.step.plan, step.step.step), step.thread);
  }
  std::vector<Offset<wire::EngineState>> engines;
  for (const EngineState& engine : answer->state.engines) {
    const auto operations = builder.CreateVectorOfStrings(engine.operations);
    engines.push_back(wire::CreateEngineState(builder, engine.engine, engine.joined, engine.complete, operations));
  }
  const auto threads_offset = builder.CreateVector(threads);
  const auto owed_offset = builder.CreateVectorOfStructs(owed);
  const auto engines_offset = builder.CreateVector(engines);
  const auto strangers = builder.CreateVectorOfStrings(answer->state.strangers);
  return wire::CreateStallAnswer(builder, answer->question, program, steps, threads_offset, owed_offset, engines_offset,
                                 strangers);
}

Awaited decode_awaited(const wire::Awaited& message) {
  Awaited awaited;
  awaited.engine = message.engine();
  awaited.operation = message.operation()->str();
  if (const auto* step = message.step()) awaited.step = {step->plan(), step->step()};
  awaited.serial = message.serial();
  awaited.description = message.description()->str();
  return awaited;
}

RankState decode_state(const wire::StallAnswer& answer) {
  RankState state;
  for (flatbuffers::uoffset_t i = 0; i < length(answer.threads()); ++i) {
    ThreadState thread;
    const auto* waits = answer.threads()->Get(i)->waits();
    for (flatbuffers::uoffset_t j = 0; j < length(waits); ++j) thread.waits.push_back(decode_awaited(*waits->Get(j)));
    state.threads.push_back(std::move(thread));
  }
  for (const auto& step : copied<wire::OwedStep>(answer.owed())) {
    state.owed.push_back({step.engine(), {step.step().plan(), step.step().step()}, step.thread()});
  }
  for (flatbuffers::uoffset_t i = 0; i < length(answer.engines()); ++i) {
    const auto* engine = answer.engines()->Get(i);
    EngineState known{engine->engine(), engine->joined(), engine->complete(), {}};
    for (flatbuffers::uoffset_t j = 0; j < length(engine->operations()); ++j) {
      known.operations.push_back(engine->operations()->Get(j)->str());
    }
    state.engines.push_back(std::move(known));
  }
  for (flatbuffers::uoffset_t i = 0; i < length(answer.strangers()) && i < RankState::kMostStrangers; ++i) {
    state.strangers.push_back(answer.strangers()->Get(i)->str().substr(0, kMostLocationBytes));
  }
  return state;
}

void decode_stall(const wire::Announcement& message, RankNote& content) {
  if (const auto* stalled = message.stalled_step()) {
    constexpr std::uint64_t kLongestMs = std::uint64_t{1} << 50;
    content.stalled_step = {{stalled->step()->plan(), stalled->step()->step()},
                            stalled->plan_name()->str(),
                            std::chrono::milliseconds(std::min(stalled->waited_ms(), kLongestMs))};
  }
  if (const auto* answer = message.stall_answer()) {
    content.stall_answer = {answer->question(), answer->program()->str().substr(0, kMostLocationBytes),
                            decode_steps(answer->waits_for()), decode_state(*answer)};
  }
}

Offset<wire::DeadlockReport> encode_deadlock(FlatBufferBuilder& builder, const std::optional<DeadlockReport>& report) {
  if (!report) return 0;
  const auto engines = builder.CreateVector(report->engines);
  return wire::CreateDeadlockReport(builder, engines, builder.CreateString(report->text));
}

Offset<wire::Signature> encode_signature(FlatBufferBuilder& builder, const Signature& signature) {
  const auto shape = builder.CreateVector(signature.shape);
  const auto group = signature.group.empty() ? 0 : builder.CreateString(signature.group);
  return wire::CreateSignature(builder, static_cast<std::uint8_t>(signature.kind),
                               static_cast<std::uint8_t>(signature.type),
                               static_cast<std::uint8_t>(signature.operation), shape, signature.prescale,
                               signature.postscale, signature.root, group, signature.group_size, signature.elsewhere);
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
  signature.shape = copied<std::int64_t>(message.shape());
  signature.prescale = message.prescale();
  signature.postscale = message.postscale();
  signature.root = message.root();
  if (message.group() != nullptr) signature.group = message.group()->str();
  signature.group_size = message.group_size();
  signature.elsewhere = message.elsewhere();
  return signature;
}

Offset<flatbuffers::Vector<Offset<wire::DisputedRows>>> encode_disputes(FlatBufferBuilder& builder,
                                                                        const std::vector<DisputedRows>& disputes) {
  if (disputes.empty()) return 0;
  std::vector<Offset<wire::DisputedRows>> encoded;
  for (const DisputedRows& dispute : disputes) {
    const auto name = builder.CreateString(dispute.name);
    const auto message = builder.CreateString(dispute.message);
    encoded.push_back(wire::CreateDisputedRows(builder, name, dispute.sender, dispute.transient, message));
  }
  return builder.CreateVector(encoded);
}

std::vector<wire::RankRun> encode_ranks(const std::vector<int>& ranks) {
  std::vector<wire::RankRun> runs;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.emplace_back(ranks[begin], static_cast<std::int32_t>(end - begin));
    begin = end;
  }
  return runs;
}

/// Ascending and each once, so that there cannot be more than a group may have.
std::vector<int> decode_ranks(const flatbuffers::Vector<const wire::RankRun*>* runs) {
  std::vector<int> ranks;
  int next = 0;
  for (const auto& run : copied<wire::RankRun>(runs)) {
    if (run.first() < next || run.count() < 1 || run.first() > kMostRanks - run.count()) {
      throw Error(ErrorCode::kProtocol, fmt::format("a peer named {} ranks from {}", run.count(), run.first()));
    }
    next = run.first() + run.count();
    for (int rank = run.first(); rank < next; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

Offset<wire::Announcement> encode_note(FlatBufferBuilder& builder, const RankNote& content,
                                       Offset<flatbuffers::Vector<std::uint32_t>> known,
                                       Offset<flatbuffers::Vector<Offset<wire::NewOperation>>> added,
                                       Offset<flatbuffers::Vector<Offset<wire::RelayedNote>>> relayed) {
  const auto join =
      content.join ? wire::CreateJoin(builder, content.join->every_operation, content.join->divide_by_contributors) : 0;
  const auto steps = content.steps.empty() ? 0 : builder.CreateVectorOfStructs(encode_steps(content.steps));
  const auto stalled = encode_stalled(builder, content.stalled_step);
  const auto stall_answer = encode_answer(builder, content.stall_answer);
  const auto disputes = encode_disputes(builder, content.disputes);
  return wire::CreateAnnouncement(builder, known, added, content.leaving, join, steps, stalled, stall_answer, disputes,
                                  relayed);
}

RankNote decode_note(const wire::Announcement& message) {
  RankNote content;
  content.leaving = message.leaving();
  if (const auto* join = message.join()) content.join = {join->every_operation(), join->divide_by_contributors()};
  content.steps = decode_steps(message.steps());
  decode_stall(message, content);
  for (flatbuffers::uoffset_t i = 0; i < length(message.disputes()); ++i) {
    const auto* dispute = message.disputes()->Get(i);
    content.disputes.push_back(
        {dispute->name()->str(), dispute->sender(), dispute->transient(), dispute->message()->str()});
  }
  return content;
}

RowKnowledge decode_row_knowledge(std::uint8_t number) {
  if (number > static_cast<std::uint8_t>(RowKnowledge::kDisputed)) {
    throw Error(ErrorCode::kProtocol, fmt::format("the coordinator ordered an operation with row counts {}", number));
  }
  return static_cast<RowKnowledge>(number);
}

}  // namespace

Announced announcement_of(const Request& request, int rank, int size) {
  Announced announced{request.name, request.signature, request.transient, row_counts(request.signature, rank, size)};
  announced.signature.splits.clear();
  announced.signature.expected_splits.clear();
  return announced;
}

Error decode_end(std::span<const std::byte> payload) {
  return {ErrorCode::kPeerLeft, std::string(reinterpret_cast<const char*>(payload.data()), payload.size())};
}

Bytes AnnouncementEncoder::encode(const AnnouncementContent& content) {
  FlatBufferBuilder builder;
  std::vector<std::uint32_t> known;
  std::vector<Offset<wire::NewOperation>> added;
  for (const Announced& operation : content.operations) {
    const auto found = known_.find(operation.name);
    const bool of_all = operation.ranks.empty();
    if (of_all && found != known_.end() && found->second.signature == operation.signature &&
        found->second.rows == operation.rows) {
      known.push_back(found->second.number);
      continue;
    }
    std::uint32_t number = of_all && found != known_.end() ? found->second.number : 0;
    if (of_all && number == 0 && !operation.transient && last_number_ < kMostRememberedNames) number = ++last_number_;
    if (number != 0) known_[operation.name] = {number, operation.signature, operation.rows};
    const auto signature = encode_signature(builder, operation.signature);
    const wire::RowCounts rows(operation.rows.difference, operation.rows.stated, operation.rows.assumed);
    const auto ranks = of_all ? 0 : builder.CreateVectorOfStructs(encode_ranks(operation.ranks));
    added.push_back(wire::CreateNewOperation(builder, number, builder.CreateString(operation.name), signature,
                                             operation.rows == RowCounts{} ? nullptr : &rows, ranks,
                                             operation.transient, static_cast<std::uint32_t>(known.size())));
  }
  std::vector<Offset<wire::RelayedNote>> relayed;
  for (const RelayedNote& one : content.relayed) {
    const auto note = encode_note(builder, one.note, 0, 0, 0);
    relayed.push_back(wire::CreateRelayedNote(builder, one.rank, note));
  }
  const auto known_offset = builder.CreateVector(known);
  const auto added_offset = builder.CreateVector(added);
  const auto relayed_offset = relayed.empty() ? 0 : builder.CreateVector(relayed);
  builder.Finish(encode_note(builder, content, known_offset, added_offset, relayed_offset));
  return finished_bytes(builder);
}

AnnouncementContent AnnouncementDecoder::decode(std::span<const std::byte> bytes) {
  const auto& message = verified<wire::Announcement>(bytes, "announcement");
  AnnouncementContent content;
  static_cast<RankNote&>(content) = decode_note(message);
  for (flatbuffers::uoffset_t i = 0; i < length(message.relayed()); ++i) {
    const auto* relayed = message.relayed()->Get(i);
    content.relayed.push_back({relayed->rank(), decode_note(*relayed->note())});
  }
  const auto known = copied<std::uint32_t>(message.known());
  std::size_t next_known = 0;
  const auto take_known = [&](std::size_t end) {
    for (; next_known < std::min(end, known.size()); ++next_known) {
      const auto found = known_.find(known[next_known]);
      if (found == known_.end()) {
        throw Error(ErrorCode::kProtocol,
                    fmt::format("a peer announced operation number {}, which it never introduced", known[next_known]));
      }
      content.operations.push_back(found->second);
    }
  };
  for (flatbuffers::uoffset_t i = 0; i < length(message.added()); ++i) {
    const auto* added = message.added()->Get(i);
    take_known(added->after());
    Announced operation{added->name()->str(), decode_signature(*added->signature()), added->transient()};
    if (const auto* rows = added->rows()) operation.rows = {rows->difference(), rows->stated(), rows->assumed()};
    operation.ranks = decode_ranks(added->ranks());
    if (added->number() > kMostRememberedNames || (added->number() != 0 && !operation.ranks.empty())) {
      throw Error(ErrorCode::kProtocol, fmt::format("a peer numbered an operation {}", added->number()));
    }
    if (added->number() != 0) known_[added->number()] = operation;
    content.operations.push_back(std::move(operation));
  }
  take_known(known.size());
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
      const auto signature = operation.signature ? encode_signature(builder, *operation.signature) : 0;
      operations.push_back(wire::CreateOrderedOperation(builder, number, name, sizes, signature, operation.divisor,
                                                        static_cast<std::uint8_t>(operation.rows)));
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
  const auto steps = order.steps.empty() ? 0 : builder.CreateVectorOfStructs(encode_steps(order.steps));
  const auto deadlock = encode_deadlock(builder, order.deadlock);
  builder.Finish(wire::CreateOrder(builder, buckets_offset, refusals_offset, order.announce_steps, steps,
                                   order.last_rank_to_join.value_or(-1), order.question, order.engine, deadlock));
  return finished_bytes(builder);
}

Order OrderDecoder::decode(std::span<const std::byte> bytes) {
  const auto& message = verified<wire::Order>(bytes, "order");
  Order order;
  order.announce_steps = message.announce_steps();
  order.steps = decode_steps(message.steps());
  order.question = message.question();
  order.engine = message.engine();
  if (const auto* report = message.deadlock()) {
    order.deadlock = {copied<std::uint64_t>(report->engines()), report->text()->str()};
  }
  if (message.last_rank_to_join() >= 0) order.last_rank_to_join = message.last_rank_to_join();
  for (flatbuffers::uoffset_t i = 0; i < length(message.buckets()); ++i) {
    const auto* operations = message.buckets()->Get(i)->operations();
    Bucket bucket;
    for (flatbuffers::uoffset_t j = 0; j < length(operations); ++j) {
      const auto* operation = operations->Get(j);
      OrderedOperation ordered;
      ordered.sizes = copied<std::int64_t>(operation->sizes());
      if (operation->signature() != nullptr) ordered.signature = decode_signature(*operation->signature());
      ordered.divisor = operation->divisor();
      ordered.rows = decode_row_knowledge(operation->rows());
      if (operation->name() != nullptr) {
        ordered.name = operation->name()->str();
        if (operation->number() > kMostRememberedNames) {
          throw Error(ErrorCode::kProtocol, fmt::format("the coordinator introduced operation number {}, more than {}",
                                                        operation->number(), kMostRememberedNames));
        }
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
        {refusal->name()->str(), error_code_from_number(refusal->code()), refusal->message()->str()});
  }
  return order;
}

}  // namespace gyre::engine::internal
