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
// Logs on their way up (ADR 127). Only to a service whose welcome names a window.
constexpr std::uint16_t kLogOpen = 4;   ///< LogPlace: the node has such a file. Answered by kLogFrom.
constexpr std::uint16_t kLogBytes = 5;  ///< LogPiece; answered by kLogTaken, or by kLogFrom where it does not fit.
constexpr std::uint16_t kLogCut = 6;    ///< LogPlace: the file ends there now. Answered by kLogFrom.
constexpr std::uint16_t kLogEnd = 7;    ///< {"attempt"}: all that there will be was sent. Answered by kLogDone.
// Code on its way down (ADR 131). Only to a service whose welcome names a window for it.
constexpr std::uint16_t kCodeWanted = 31;  ///< CodeRequest: answered by kCodeBytes or kCodeRefused.
// service -> node program
constexpr std::uint16_t kWelcome = 11;  ///< Welcome
constexpr std::uint16_t kRenewed = 12;
constexpr std::uint16_t kPrepare = 13;   ///< WorkOrder
constexpr std::uint16_t kRun = 14;       ///< {"attempt", "facts": […]}
constexpr std::uint16_t kFinish = 15;    ///< {"attempt"}
constexpr std::uint16_t kStop = 16;      ///< {"attempt", "reason", "grace_seconds"}
constexpr std::uint16_t kForget = 17;    ///< {"attempt"}: its record has been written down by the service.
constexpr std::uint16_t kLeave = 18;     ///< {}: the node is not needed any more; the node program ends.
constexpr std::uint16_t kLogFrom = 19;   ///< LogPlace: the file is wanted from there.
constexpr std::uint16_t kLogTaken = 20;  ///< LogPlace: all before it is in the service's file.
constexpr std::uint16_t kLogDone =
    21;  ///< {"attempt"}: its logs are on the service's disk; the node may remove its own.
constexpr std::uint16_t kCodeBytes = 41;    ///< CodePiece
constexpr std::uint16_t kCodeRefused = 42;  ///< CodeRefusal
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
  /// It asks for the code of its jobs; those of earlier versions read it from a path.
  bool asks_for_code = true;
  bool carries_streams = true;  ///< ADR 134.
  bool carries_shells = true;   ///< ADR 137.
};

struct Welcome {
  std::chrono::milliseconds lease{0};
  /// How many bytes of logs may be on their way at once, on this connection; 0: the service takes none.
  std::uint64_t log_window = 0;
  /// How many bytes of code may be asked for at once; 0: the service, of an earlier version, sends none.
  std::uint64_t code_window = 0;
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
std::string encode(const Welcome& welcome);

Registration registration_from(const net::Message& message);
NodeReport report_from(const net::Message& message);
WorkOrder order_from(const net::Message& message);
RunCommand run_command_from(const net::Message& message);
StopAttempt stop_attempt_from(const net::Message& message);
std::string attempt_from(const net::Message& message);
std::uint64_t number_from(const net::Message& message);
Welcome welcome_from(const net::Message& message);

}  // namespace gyre::jobs::orders
