#include "gyre/engine/internal/open/signature_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "gyre/collectives/collectives.h"

namespace gyre::engine::internal {

namespace {

/// The rows of all together; nothing when they are negative or too many.
std::optional<std::int64_t> sum_of_rows(std::span<const std::int64_t> rows) {
  std::int64_t sum = 0;
  for (const std::int64_t count : rows) {
    if (count < 0 || count > std::numeric_limits<std::int64_t>::max() - sum) return std::nullopt;
    sum += count;
  }
  return sum;
}

std::string splits_problem(const Signature& signature, int size) {
  const std::int64_t rows = signature.shape[0];
  const auto& expected = signature.expected_splits;
  if (!expected.empty() &&
      (expected.size() != static_cast<std::size_t>(size) || !has_size(signature.shape, expected))) {
    return fmt::format("the expected splits [{}] are not row counts for {} ranks", fmt::join(expected, ", "), size);
  }
  // With one rank there is no other that could find that out.
  if (!expected.empty() && size == 1 && expected[0] != rows) {
    return fmt::format("{} are sent to the only rank, which expects {}", rows, expected[0]);
  }
  if (signature.splits.empty()) {
    if (rows % size == 0) return {};
    return fmt::format("without splits the first dimension, {}, must be a multiple of the size, {}", rows, size);
  }
  if (signature.splits.size() != static_cast<std::size_t>(size)) {
    return fmt::format("{} splits were given for {} ranks", signature.splits.size(), size);
  }
  std::int64_t left = rows;
  for (const std::int64_t split : signature.splits) {
    if (split < 0) return fmt::format("split {} is negative", split);
    left = split > left ? -1 : left - split;
    if (left < 0) break;
  }
  if (left == 0) return {};
  return fmt::format("the splits [{}] do not add up to the first dimension, {}", fmt::join(signature.splits, ", "),
                     rows);
}

Error wrong_sizes(const OrderedOperation& operation, const Signature& signature) {
  return {ErrorCode::kProtocol, fmt::format("the coordinator's sizes [{}] do not fit {} '{}' of {}",
                                            fmt::join(operation.sizes, ", "), operation_name(signature.kind),
                                            operation.name, describe_tensor(signature.type, signature.shape))};
}

void check_gathered(const OrderedOperation& operation, const Signature& signature, int rank, int size,
                    bool contributes) {
  const std::int64_t own = !contributes ? 0 : signature.shape.empty() ? 1 : signature.shape[0];
  const std::vector<std::int64_t> all_alike(static_cast<std::size_t>(size), own);
  const auto& sizes = operation.sizes.empty() ? all_alike : operation.sizes;
  const bool fits = sizes.size() == static_cast<std::size_t>(size) && sizes[static_cast<std::size_t>(rank)] == own &&
                    has_size(signature.shape, sizes);
  if (!fits) throw wrong_sizes(operation, signature);
}

void check_exchanged(const OrderedOperation& operation, const Signature& signature, int rank, int size,
                     bool contributes) {
  if (!operation.sizes.empty()) throw wrong_sizes(operation, signature);
  if (operation.rows != RowKnowledge::kKnown) return;
  const auto own = static_cast<std::size_t>(rank);
  if (contributes && rows_to_each(signature, size)[own] == expected_rows(signature, size)[own]) return;
  throw Error(ErrorCode::kProtocol,
              fmt::format("the coordinator ordered '{}' as if every rank expected what it gets", operation.name));
}

}  // namespace

bool fusable(const Signature& a, const Signature& b) {
  return a.kind == OperationKind::kAllreduce && b.kind == OperationKind::kAllreduce && a.type == b.type &&
         a.operation == b.operation && a.prescale == b.prescale && a.postscale == b.postscale &&
         a.elsewhere == b.elsewhere;
}

bool has_size(const Shape& shape, std::span<const std::int64_t> rows) {
  const auto sum = sum_of_rows(rows);
  if (!sum) return false;
  Shape all = shape;
  if (all.empty()) all.resize(1);
  all[0] = *sum;
  try {
    static_cast<void>(element_count(all));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string signature_problem(const Signature& signature, int size) {
  if (signature.withdrawn()) return {};
  try {
    static_cast<void>(element_count(signature.shape));
  } catch (const Error& error) {
    return error.what();
  }
  const bool has_root = signature.kind == OperationKind::kBroadcast || signature.kind == OperationKind::kAllreduce;
  if (has_root && (signature.root < 0 || signature.root >= size)) {
    return fmt::format("root {} is not a rank of this group of {}", signature.root, size);
  }
  const bool needs_rows = signature.kind == OperationKind::kReduceScatter || signature.kind == OperationKind::kAllToAll;
  if (needs_rows && signature.shape.empty()) return "a scalar has no first dimension to split";
  return {};
}

void check_announced(const Announced& announced, const std::vector<int>& ranks, int size) {
  std::string problem = signature_problem(announced.signature, size);
  if (problem.empty() && !announced.signature.group.empty() && announced.signature.group_size == 0) {
    problem = "its group has no members";
  }
  const RowCounts& rows = announced.rows;
  const bool has_rows = announced.signature.kind == OperationKind::kAllToAll;
  const bool fits = has_rows ? std::uint64_t{rows.stated} + rows.assumed <= ranks.size() : rows == RowCounts{};
  if (problem.empty() && !fits) problem = "its row counts are those of more ranks";
  if (problem.empty()) return;
  throw Error(ErrorCode::kProtocol, fmt::format("rank {} announced {} '{}', which cannot be: {}", ranks.front(),
                                                operation_name(announced.signature.kind), announced.name, problem));
}

void check_order(const Order& order, int size) {
  const auto refuse = [](const std::string& problem) {
    throw Error(ErrorCode::kProtocol, "an order of the coordinator cannot be: " + problem);
  };
  if (order.last_rank_to_join && *order.last_rank_to_join >= size) {
    refuse(fmt::format("the last rank to join is {} of {}", *order.last_rank_to_join, size));
  }
  for (const Bucket& bucket : order.buckets) {
    if (bucket.empty()) refuse("a bucket is empty");
    for (const OrderedOperation& operation : bucket) {
      if (operation.divisor < 0 || operation.divisor > size) {
        refuse(fmt::format("'{}' is an average over {} of {} ranks", operation.name, operation.divisor, size));
      }
      if (!operation.signature) continue;
      const std::string problem = signature_problem(*operation.signature, size);
      if (!problem.empty()) refuse(fmt::format("'{}': {}", operation.name, problem));
    }
  }
}

void check_sizes(const OrderedOperation& operation, const Signature& signature, int rank, int size, bool contributes) {
  switch (signature.kind) {
    case OperationKind::kAllgather: return check_gathered(operation, signature, rank, size, contributes);
    case OperationKind::kAllToAll: return check_exchanged(operation, signature, rank, size, contributes);
    case OperationKind::kAllreduce:
    case OperationKind::kBroadcast:
    case OperationKind::kReduceScatter:
    case OperationKind::kBarrier:
      if (!operation.sizes.empty()) throw wrong_sizes(operation, signature);
  }
}

void check_fusable(const Signature& first, const Signature& other, const std::string& name) {
  if (fusable(first, other)) return;
  throw Error(ErrorCode::kProtocol,
              fmt::format("the coordinator ordered '{}' in one bucket with an operation of another kind", name));
}

Error invalid_request(const Request& request, std::string_view problem) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} '{}': {}", operation_name(request.signature.kind), request.name, problem)};
}

namespace {

void validate_sizes(const Request& request) {
  const Signature& signature = request.signature;
  const std::size_t bytes = element_count(signature.shape) * collectives::size_of(signature.type);
  if (signature.elsewhere) return;
  if (request.input.size() != bytes && signature.kind != OperationKind::kBarrier) {
    throw invalid_request(request, fmt::format("the input has {} bytes, {} has {}", request.input.size(),
                                               describe_tensor(signature.type, signature.shape), bytes));
  }
  const bool in_place = signature.kind == OperationKind::kAllreduce || signature.kind == OperationKind::kBroadcast;
  if (in_place && request.output.size() != bytes) {
    throw invalid_request(request, fmt::format("the output has {} bytes, {} are needed", request.output.size(), bytes));
  }
}

}  // namespace

void validate(const Request& request, int size) {
  const Signature& signature = request.signature;
  if (request.name.empty()) throw Error(ErrorCode::kInvalidArgument, "an operation needs a name");
  validate_sizes(request);
  const bool reduces = signature.kind == OperationKind::kAllreduce || signature.kind == OperationKind::kReduceScatter;
  std::string problem = signature_problem(signature, size);
  if (problem.empty() && reduces) {
    problem = collectives::reduction_problem({.type = signature.type,
                                              .operation = signature.operation,
                                              .prescale = signature.prescale,
                                              .postscale = signature.postscale});
  }
  if (problem.empty() && signature.kind == OperationKind::kAllToAll) problem = splits_problem(signature, size);
  if (!problem.empty()) throw invalid_request(request, problem);
}

}  // namespace gyre::engine::internal
