#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/net/message.h"

namespace gyre::jobs::orders {

// What a node program and the service say to each other: messages of net, whose payload is JSON (ADR 43).
// Both sides treat it as untrusted: it is parsed within limits and checked field by field. Error(kCorruptData).
namespace message_type {
// node program -> service
constexpr std::uint16_t kRegister = 1;  ///< Registration; the first message.
constexpr std::uint16_t kRenew = 2;     ///< {"number"}: answered by kRenewed with the same number.
constexpr std::uint16_t kReport = 3;    ///< NodeReport
// service -> node program
constexpr std::uint16_t kWelcome = 11;  ///< {"lease_ms"}
constexpr std::uint16_t kRenewed = 12;
constexpr std::uint16_t kPrepare = 13;  ///< WorkOrder
constexpr std::uint16_t kRun = 14;      ///< {"attempt", "facts": […]}
constexpr std::uint16_t kFinish = 15;   ///< {"attempt"}
constexpr std::uint16_t kStop = 16;     ///< {"attempt", "reason", "grace_seconds"}
constexpr std::uint16_t kForget = 17;   ///< {"attempt"}: its record has been written down by the service.
constexpr std::uint16_t kLeave = 18;    ///< {}: the node is not needed any more; the node program ends.
}  // namespace message_type

constexpr int kProtocolVersion = 1;

struct Registration {
  std::string node;                 ///< NodePlace::registered_name().
  std::int64_t process = 0;         ///< The node program's.
  std::vector<NodeReport> reports;  ///< Of every attempt that the service has not said to forget.
  // For orders that do not know the node's address.
  std::string address = {};
  int cores = 1;
  int gpus = 0;
};

struct RunCommand {
  std::string attempt;
  std::vector<NodeFacts> facts;
};

struct StopAttempt {
  std::string attempt;
  StopReason reason = StopReason::kRequest;
  std::chrono::seconds grace{0};
};

// Payloads.
std::string encode(const Registration& registration);
std::string encode(const RunCommand& command);
std::string encode(const StopAttempt& command);
std::string encode_attempt(const std::string& attempt);
std::string encode_number(std::uint64_t number);
std::string encode_lease(std::chrono::milliseconds lease);

Registration registration_from(const net::Message& message);
NodeReport report_from(const net::Message& message);
WorkOrder order_from(const net::Message& message);
RunCommand run_command_from(const net::Message& message);
StopAttempt stop_attempt_from(const net::Message& message);
std::string attempt_from(const net::Message& message);
std::uint64_t number_from(const net::Message& message);
std::chrono::milliseconds lease_from(const net::Message& message);

}  // namespace gyre::jobs::orders
