#include "gyre/engine/internal/open/executor.h"

#include <spdlog/logger.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/collectives/copy_bytes.h"
#include "gyre/collectives/select.h"
#include "gyre/engine/internal/lane_work.h"

namespace gyre::engine::internal {

namespace {

Shape with_rows(Shape shape, std::int64_t rows) {
  if (shape.empty()) return {rows};
  shape[0] = rows;
  return shape;
}

std::int64_t sum_of(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

std::vector<std::size_t> in_bytes(std::span<const std::int64_t> rows, std::size_t row_size_bytes) {
  std::vector<std::size_t> bytes;
  for (const std::int64_t count : rows) bytes.push_back(static_cast<std::size_t>(count) * row_size_bytes);
  return bytes;
}

void copy(std::span<std::byte> to, std::span<const std::byte> from) {
  GYRE_CHECK(to.size() == from.size());
  collectives::copy_bytes(to.data(), from.data(), from.size());
}

bool overlap(std::span<const std::byte> left, std::span<const std::byte> right) {
  return std::less<>()(left.data(), right.data() + right.size()) &&
         std::less<>()(right.data(), left.data() + left.size());
}

std::string_view phase_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllgather: return "GYRE_ALLGATHER";
    case OperationKind::kReduceScatter: return "GYRE_REDUCESCATTER";
    default: return "GYRE_ALLTOALL";
  }
}

}  // namespace

std::size_t row_bytes(const Signature& signature) {
  const Shape row(signature.shape.begin() + (signature.shape.empty() ? 0 : 1), signature.shape.end());
  return element_count(row) * collectives::size_of(signature.type);
}

RowsOfRank rows_of_rank(const Signature& signature, std::span<const std::int64_t> sizes, int rank, int size) {
  switch (signature.kind) {
    case OperationKind::kAllgather:
      if (!sizes.empty()) return {{}, {sizes.begin(), sizes.end()}};
      return {
          {},
          std::vector<std::int64_t>(static_cast<std::size_t>(size), signature.shape.empty() ? 1 : signature.shape[0])};
    case OperationKind::kReduceScatter:
      return {{}, {reduce_scatter_rows(signature.shape.at(0), size)[static_cast<std::size_t>(rank)]}};
    default: return {rows_to_each(signature, size), expected_rows(signature, size)};
  }
}

std::span<std::byte> place_result(const Request& request, const RowsOfRank& rows, int rank, Result& result) {
  const std::size_t row_size_bytes = row_bytes(request.signature);
  const std::int64_t all = sum_of(rows.received);
  result.shape = with_rows(request.signature.shape, all);
  const std::size_t size_bytes = static_cast<std::size_t>(all) * row_size_bytes;
  if (!request.output.empty() && request.output.size() == size_bytes) {
    if (!overlap(request.output, request.input)) return request.output;
    // In place: the input is this rank's part of the result.
    if (request.signature.kind == OperationKind::kAllgather) {
      const auto before = sum_of(std::span(rows.received).first(static_cast<std::size_t>(rank)));
      const std::byte* part = request.output.data() + static_cast<std::size_t>(before) * row_size_bytes;
      if (part == request.input.data()) return request.output;
    }
  }
  result.bytes.resize(size_bytes);
  return result.bytes;
}

std::vector<std::int64_t> reduce_scatter_rows(std::int64_t rows, int size) {
  std::vector<std::int64_t> shares(static_cast<std::size_t>(size), rows / size);
  for (std::int64_t rank = 0; rank < rows % size; ++rank) ++shares[static_cast<std::size_t>(rank)];
  return shares;
}

collectives::Reduction reduction_of(const Signature& signature, int average_over) {
  return {.type = signature.type,
          .operation = signature.operation,
          .prescale = signature.prescale,
          .postscale = signature.postscale,
          .average_over = average_over};
}

std::vector<Result> Executor::run(const Bucket& operations, const std::vector<Pending>& pending) {
  const Request& request = pending.front().request;
  if (request.signature.elsewhere) return agreed_on(operations, request.signature);
  const int average_over = operations.front().divisor;
  std::vector<Result> results(pending.size());
  switch (request.signature.kind) {
    case OperationKind::kAllreduce:
      if (pending.size() == 1) {
        allreduce_alone(request, average_over);
      } else {
        allreduce_fused(pending, average_over);
      }
      break;
    case OperationKind::kBroadcast: broadcast(request); break;
    case OperationKind::kAllgather:
    case OperationKind::kReduceScatter:
    case OperationKind::kAllToAll: {
      const OrderedOperation& operation = operations.front();
      const bool known = operation.rows == RowKnowledge::kKnown;
      results[0] = run_one(request,
                           known ? rows_of_rank(request.signature, operation.sizes, lane_.rank(), lane_.size())
                                 : exchanged_rows(lane_, request.signature, request.name),
                           average_over);
      break;
    }
    case OperationKind::kBarrier: collectives::barrier(lane_); break;
  }
  return results;
}

std::vector<Result> Executor::agreed_on(const Bucket& operations, const Signature& signature) {
  std::vector<Result> results(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Agreement& agreement = results[i].agreement;
    agreement.number = ++agreed_;
    agreement.some_have_joined = operations[i].signature.has_value();
    if (signature.kind != OperationKind::kAllgather) continue;
    agreement.rows = rows_of_rank(signature, operations[i].sizes, lane_.rank(), lane_.size()).received;
  }
  return results;
}

void Executor::log_choice(const Request& first, std::size_t size_bytes, collectives::Algorithm algorithm) const {
  if (!logger_->should_log(spdlog::level::debug)) return;
  logger_->debug("allreduce of {} from '{}' on: {} ({})", format_bytes(size_bytes), first.name,
                 collectives::algorithm_name(algorithm),
                 collectives::reason_for(algorithm, size_bytes, false, collectives::placement_of(lane_)));
}

void Executor::allreduce_alone(const Request& request, int average_over) {
  const LaneWork work(lane_, timeline_, kOpenRow);
  copy_counted(request.output, request.input);
  timeline_.begin(request.name, "GYRE_ALLREDUCE");
  const auto algorithm = collectives::allreduce(lane_, request.output, reduction_of(request.signature, average_over),
                                                peer_mappings_, request.peer_mapped);
  timeline_.end(request.name);
  log_choice(request, request.output.size(), algorithm);
}

void Executor::copy_counted(std::span<std::byte> to, std::span<const std::byte> from) const {
  constexpr std::size_t kWorthTimingBytes = 64 * 1024;
  if (from.size() < kWorthTimingBytes) return copy(to, from);
  const CountedTime copying(lane_.counters().copying_ns);
  copy(to, from);
}

void Executor::allreduce_fused(const std::vector<Pending>& pending, int average_over) {
  const LaneWork work(lane_, timeline_, kOpenRow);
  // Element-wise work does not care where one tensor ends and the next begins, so they stand without gaps.
  std::size_t total_bytes = 0;
  for (const Pending& one : pending) total_bytes += one.request.input.size();
  if (fusion_buffer_.size() < total_bytes) fusion_buffer_.resize(total_bytes);
  const auto buffer = std::span(fusion_buffer_).first(total_bytes);
  std::size_t offset = 0;
  for (const Pending& one : pending) {
    timeline_.begin(one.request.name, "MEMCPY_IN_FUSION_BUFFER");
    copy_counted(buffer.subspan(offset, one.request.input.size()), one.request.input);
    offset += one.request.input.size();
    timeline_.end(one.request.name);
    timeline_.begin(one.request.name, "GYRE_ALLREDUCE");
  }
  const auto algorithm =
      collectives::allreduce(lane_, buffer, reduction_of(pending.front().request.signature, average_over));
  log_choice(pending.front().request, total_bytes, algorithm);
  offset = 0;
  for (const Pending& one : pending) {
    timeline_.end(one.request.name);
    timeline_.begin(one.request.name, "MEMCPY_OUT_FUSION_BUFFER");
    copy_counted(one.request.output, buffer.subspan(offset, one.request.output.size()));
    offset += one.request.output.size();
    timeline_.end(one.request.name);
  }
}

void Executor::broadcast(const Request& request) {
  const LaneWork work(lane_, timeline_, kOpenRow);
  if (lane_.rank() == request.signature.root) copy(request.output, request.input);
  timeline_.begin(request.name, "GYRE_BROADCAST");
  collectives::broadcast(lane_, request.output, request.signature.root);
  timeline_.end(request.name);
}

std::optional<RowDispute> Executor::find_dispute(const Request& request) {
  return internal::find_dispute(lane_, request.signature, request.name);
}

Result Executor::run_one(const Request& request, RowsOfRank rows, int average_over) {
  const Signature& signature = request.signature;
  const std::size_t row_size_bytes = row_bytes(signature);
  Result result;
  timeline_.begin(request.name, "ALLOCATE_OUTPUT");
  const auto output = place_result(request, rows, lane_.rank(), result);
  timeline_.end(request.name);
  timeline_.begin(request.name, phase_of(signature.kind));
  const LaneWork work(lane_, timeline_, kOpenRow);
  switch (signature.kind) {
    case OperationKind::kAllgather:
      collectives::allgather(lane_, request.input, in_bytes(rows.received, row_size_bytes), output);
      break;
    case OperationKind::kReduceScatter:
      collectives::reduce_scatter(lane_, request.input,
                                  in_bytes(reduce_scatter_rows(signature.shape.at(0), lane_.size()), row_size_bytes),
                                  output, reduction_of(signature, average_over));
      break;
    case OperationKind::kAllToAll:
      collectives::all_to_all(lane_, request.input, in_bytes(rows.sent, row_size_bytes), output,
                              in_bytes(rows.received, row_size_bytes));
      result.received_splits = std::move(rows.received);
      break;
    default: GYRE_CHECK(false);
  }
  timeline_.end(request.name);
  return result;
}

}  // namespace gyre::engine::internal
