#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/collectives/collectives.h"
#include "gyre/collectives/data_type.h"

namespace gyre::engine {

using collectives::DataType;
using collectives::ReduceOperation;
using collectives::WireFormat;

/// Stable numbers: they travel on the wire.
enum class OperationKind : std::uint8_t {
  kAllreduce = 1,
  kBroadcast = 2,
  kAllgather = 3,
  kReduceScatter = 4,
  kAllToAll = 5,
  kBarrier = 6,
};

std::string_view operation_name(OperationKind kind);
/// What a trace calls it: "ALLREDUCE".
std::string phase_name(OperationKind kind);

using Shape = std::vector<std::int64_t>;

/// "float32 [3, 4]".
std::string describe_tensor(DataType type, const Shape& shape);
/// Error(kInvalidArgument) for negative or overflowing dimensions.
std::size_t element_count(const Shape& shape);

/// The properties on which ranks must agree before an operation may move a byte (all of it for allreduce and broadcast;
/// all but the first dimension for allgather; all but the splits for all-to-all, whose `expected_splits` must be what
/// the others send).
struct Signature {
  OperationKind kind = OperationKind::kBarrier;
  DataType type = DataType::kUint8;
  Shape shape{};
  ReduceOperation operation = ReduceOperation::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  ///< Broadcast, and an allreduce of which one rank keeps the result. See withdrawn().
  std::vector<std::int64_t> splits{};           ///< All-to-all: rows of `shape[0]` for each rank; empty: even.
  std::vector<std::int64_t> expected_splits{};  ///< All-to-all: rows that this rank expects of each; empty: any.
  std::string group{};  ///< Operations of one group complete together or not at all; empty: alone.
  std::uint32_t group_size = 0;
  /// The engine agrees on the operation and on its place among others of this kind, and moves no byte: something else
  /// carries it out on every rank (the library of a device). Its request needs no memory.
  bool elsewhere = false;

  /// Announced in place of an operation that failed on this rank before it could be submitted, so that the ranks which
  /// submitted theirs hear of it.
  bool withdrawn() const { return kind == OperationKind::kBarrier && root < 0; }

  friend bool operator==(const Signature&, const Signature&) = default;
};

/// One named operation of one rank. The memory belongs to the caller and must stay until the handle is done.
struct Request {
  std::string name;  ///< Pairs this rank's operation with the other ranks'; unique among those in flight.
  Signature signature;
  std::span<const std::byte> input;
  std::span<std::byte> output;  ///< May be the same memory as `input` for allreduce and broadcast. For the others of
                                ///< exactly the result's size, and apart from `input` (an allgather's input may lie at
                                ///< its place in the result); otherwise the engine allocates the result (see Result).
  collectives::PeerMappedBuffer peer_mapped{};  ///< Allreduce: `output` is memory that the ranks of this host may map.
  bool transient = false;  ///< The name is made from a counter and will not come again: no rank remembers it.
};

/// What the ranks have agreed on of an operation that something else carries out; equal on all of them.
struct Agreement {
  std::uint64_t number = 0;        ///< 1, 2, …: its place among the engine's operations of this kind.
  bool some_have_joined = false;   ///< Ranks that take no part: for them nothing carries it out.
  std::vector<std::int64_t> rows;  ///< Allgather: of each rank.
};

/// What an operation whose size no rank knows beforehand brings: allgather, reduce-scatter, all-to-all.
struct Result {
  std::vector<std::byte> bytes;  ///< Empty when it stands in the request's output.
  Shape shape{};
  std::vector<std::int64_t> received_splits{};  ///< All-to-all: rows from each rank.
  Agreement agreement{};                        ///< Of what something else carries out.
};

}  // namespace gyre::engine
